// What callers know from other packages, and what they say before there is a model.

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <tuple>

#include "app/foreign_arguments.h"
#include "bindings.h"
#include "completions/request.h"
#include "errors.h"
#include "json_objects.h"

namespace subbyte::python {

namespace nb = nanobind;

namespace {

using Argument = std::tuple<std::string, std::string, std::string>;

std::optional<Argument> foreign_argument(const std::string& name) {
  const auto found = app::find_foreign_argument(name);
  if (!found) return std::nullopt;
  return Argument(found->ours, found->neutral, found->instead);
}

std::optional<std::tuple<std::string, std::string>> field_rule(const std::string& name) {
  const json::KeyRule* const rule = json::find_rule(request_rules(), name);
  if (rule == nullptr) return std::nullopt;
  const bool is_computed = rule->use == json::KeyUse::kComputed;
  const char* const use = is_computed                           ? "computed"
                          : rule->use == json::KeyUse::kIgnored ? "ignored"
                                                                : "refused";
  return std::tuple(std::string(use), std::string(rule->neutral));
}

/// Refuses a field of a request that asks for something which is not computed.
void check_field(const std::string& name, nb::handle value, const std::string& where) {
  const json::KeyRule* const rule = json::find_rule(request_rules(), name);
  if (rule != nullptr && rule->use == json::KeyUse::kIgnored) return;
  nb::dict body;
  body[name.c_str()] = value;
  const json::Value fields = take(to_json(body, where));
  const json::Object object = take(json::Object::of(fields, where));
  take(json::check_keys(object, request_rules(), "completion.field"));
}

/// Reads the fields of a request that has no prompt yet, and drops what it says.
void check_request(nb::dict body, const std::string& where) {
  json::Value value = take(to_json(body, where));
  value["prompt"] = "a";
  const json::Object object = take(json::Object::of(value, where));
  take(read_completion(object, {}));
}

}  // namespace

void add_foreign(nb::module_& module) {
  module.def("foreign_argument", &foreign_argument, nb::arg("name"),
             "Of an argument of another package: ours of the same values, values in JSON that ask "
             "for nothing (\"*\": all), and what to do instead; None where it is not known.");
  module.def("foreign_argument_names", &app::foreign_argument_names);
  module.def(
      "instead_of_member",
      [](const std::string& name) { return std::string(app::instead_of_member(name)); },
      nb::arg("name"));
  module.def("field_rule", &field_rule, nb::arg("name"),
             "Of a field of a request: \"computed\", \"ignored\" or \"refused\", and of the "
             "last the values in JSON that ask for nothing beside None; None where there is none.");
  module.def("check_field", &check_field, nb::arg("name"), nb::arg("value").none(),
             nb::arg("where"));
  module.def("check_request", &check_request, nb::arg("body"), nb::arg("where"));
}

}  // namespace subbyte::python
