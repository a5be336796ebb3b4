// Filters that apply other filters and tests to each item, and attr.

#include <fmt/format.h>

#include "jinja/evaluator.h"
#include "jinja/filters.h"
#include "jinja/operations.h"

namespace subbyte::jinja {
namespace {

/// Arguments after the first `count` ones.
Arguments rest_of(const Arguments& arguments, std::size_t count) {
  return {{arguments.positional.begin() + static_cast<std::ptrdiff_t>(count),
           arguments.positional.end()},
          arguments.named};
}

/// What is false, such as none, has no items here.
std::vector<Value> items_if_any(Evaluator& evaluator, const Value& value) {
  return truth(value) ? items_of(evaluator.heap(), value) : std::vector<Value>();
}

const String& name_in(const Arguments& arguments, std::size_t index, std::string_view filter) {
  const String* const name = arguments.positional[index].string();
  if (name == nullptr) refuse(kType, fmt::format("{} takes the name of a filter or test", filter));
  return *name;
}

Value map_attributes(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"attribute", "default"};
  const Bound bound("map", arguments, kNames, 1);
  std::vector<Value> results;
  for (const Value& item : items_if_any(evaluator, value)) {
    results.push_back(attribute_at(evaluator, item, *bound[0], bound.says(1) ? bound[1] : nullptr));
  }
  return evaluator.heap().iterator(std::move(results));
}

Value run_map(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  if (arguments.positional.empty() && !arguments.named.empty()) {
    return map_attributes(evaluator, value, arguments);
  }
  if (arguments.positional.empty()) refuse(kType, "map takes the name of a filter");
  const String& name = name_in(arguments, 0, "map");
  const Arguments rest = rest_of(arguments, 1);
  std::vector<Value> results;
  for (const Value& item : items_if_any(evaluator, value)) {
    results.push_back(call_filter(evaluator, name.bytes(), item, rest));
  }
  return evaluator.heap().iterator(std::move(results));
}

/// select and reject; with an attribute in front selectattr and rejectattr.
Value choose(Evaluator& evaluator, const Value& value, const Arguments& arguments,
             bool has_attribute, bool keeps) {
  const std::size_t before = has_attribute ? 1 : 0;
  if (arguments.positional.size() < before) refuse(kType, "an attribute is missing");
  const bool has_test = arguments.positional.size() > before;
  const Arguments rest = has_test ? rest_of(arguments, before + 1) : Arguments();
  std::vector<Value> chosen;
  for (Value& item : items_if_any(evaluator, value)) {
    const Value seen =
        has_attribute ? attribute_at(evaluator, item, arguments.positional[0]) : item;
    const bool fits =
        has_test ? call_test(evaluator, name_in(arguments, before, "select").bytes(), seen, rest)
                 : truth(seen);
    if (fits == keeps) chosen.push_back(std::move(item));
  }
  return evaluator.heap().iterator(std::move(chosen));
}

Value run_select(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  return choose(evaluator, value, arguments, false, true);
}
Value run_reject(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  return choose(evaluator, value, arguments, false, false);
}
Value run_selectattr(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  return choose(evaluator, value, arguments, true, true);
}
Value run_rejectattr(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  return choose(evaluator, value, arguments, true, false);
}

/// value.name without its items.
Value run_attr(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"name"};
  const Bound bound("attr", arguments, kNames, 1);
  const std::string name = to_text(evaluator.heap(), *bound[0]).bytes();
  const bool has_items_alone =
      value.dictionary() != nullptr && member_of(value, name) == Member::kNone;
  if (has_items_alone) return evaluator.heap().undefined("a dict has no such attribute");
  return attribute_of(evaluator, value, name);
}

constexpr Filter kFilters[] = {{"map", run_map},
                               {"select", run_select},
                               {"reject", run_reject},
                               {"selectattr", run_selectattr},
                               {"rejectattr", run_rejectattr},
                               {"attr", run_attr}};

}  // namespace

std::span<const Filter> choosing_filters() {
  return kFilters;
}

}  // namespace subbyte::jinja
