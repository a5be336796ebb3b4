// Filters that apply other filters and tests to each item, and attr.

#include <fmt/format.h>

#include "jinja/evaluator.h"
#include "jinja/filters.h"
#include "jinja/operations.h"

namespace subbyte::jinja {
namespace {

/// Arguments after the first `count` ones.
Arguments rest_of(Heap& heap, const Arguments& arguments, std::size_t count) {
  Arguments rest(heap);
  rest.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(count),
                         arguments.positional.end());
  rest.named = arguments.named;
  return rest;
}

/// What is false, such as none, has no items here.
Values items_if_any(Heap& heap, const Value& value) {
  return truth(value) ? items_of(heap, value) : Values(heap);
}

/// The name of a filter or test.
std::string_view name_in(Meter& meter, const Arguments& arguments, std::size_t index,
                         std::string_view filter) {
  const String* const name = arguments.positional[index].string();
  if (name == nullptr) refuse(kType, fmt::format("{} takes the name of a filter or test", filter));
  return name->bytes(meter);
}

Value map_attributes(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"attribute", "default"};
  const Bound bound("map", arguments, kNames, 1);
  Values results(evaluator.heap());
  for (const Value& item : items_if_any(evaluator.heap(), value)) {
    results.push_back(attribute_at(evaluator, item, *bound[0], bound.says(1) ? bound[1] : nullptr));
  }
  return evaluator.heap().iterator(std::move(results));
}

Value run_map(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  if (arguments.positional.empty() && !arguments.named.empty()) {
    return map_attributes(evaluator, value, arguments);
  }
  if (arguments.positional.empty()) refuse(kType, "map takes the name of a filter");
  const std::string_view name = name_in(evaluator.heap(), arguments, 0, "map");
  const Arguments rest = rest_of(evaluator.heap(), arguments, 1);
  Values results(evaluator.heap());
  for (const Value& item : items_if_any(evaluator.heap(), value)) {
    results.push_back(call_filter(evaluator, name, item, rest));
  }
  return evaluator.heap().iterator(std::move(results));
}

/// select and reject; with an attribute in front selectattr and rejectattr.
Value choose(Evaluator& evaluator, const Value& value, const Arguments& arguments,
             bool has_attribute, bool keeps) {
  const std::size_t before = has_attribute ? 1 : 0;
  if (arguments.positional.size() < before) refuse(kType, "an attribute is missing");
  const bool has_test = arguments.positional.size() > before;
  const Arguments rest =
      has_test ? rest_of(evaluator.heap(), arguments, before + 1) : Arguments(evaluator.heap());
  Values chosen(evaluator.heap());
  for (Value& item : items_if_any(evaluator.heap(), value)) {
    const Value seen =
        has_attribute ? attribute_at(evaluator, item, arguments.positional[0]) : item;
    const bool fits =
        has_test ? call_test(evaluator, name_in(evaluator.heap(), arguments, before, "select"),
                             seen, rest)
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
  const String text = to_text(evaluator.heap(), *bound[0]);
  const std::string_view name = text.bytes(evaluator.heap());
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
