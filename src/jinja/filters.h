#pragma once
// The filters and tests that templates may name: those of Jinja 3.1, with tojson as transformers
// has it. A few that chat templates have no use for are refused by name.

#include <span>
#include <string_view>
#include <vector>

#include "jinja/methods.h"
#include "jinja/value.h"

namespace subbyte::jinja {

using FilterFunction = Value (*)(Evaluator& evaluator, const Value& value,
                                 const Arguments& arguments);
using TestFunction = bool (*)(Evaluator& evaluator, const Value& value, const Arguments& arguments);

struct Filter {
  std::string_view name;
  FilterFunction run;
};
struct Test {
  std::string_view name;
  TestFunction run;
};

bool is_filter(std::string_view name);
bool is_test(std::string_view name);
/// All, with those that are refused by name.
std::vector<std::string_view> filter_names();
std::vector<std::string_view> test_names();

/// Codes: jinja.syntax for names that there are not, jinja.unsupported.
Value call_filter(Evaluator& evaluator, std::string_view name, const Value& value,
                  const Arguments& arguments);
bool call_test(Evaluator& evaluator, std::string_view name, const Value& value,
               const Arguments& arguments);

std::span<const Filter> text_filters();
std::span<const Filter> number_filters();
std::span<const Filter> list_filters();
std::span<const Filter> choosing_filters();

/// value.a.0.b by the text "a.0.b" or an integer, as the argument `attribute` of filters has it; an
/// undefined step is `otherwise`, where there is one.
Value attribute_at(Evaluator& evaluator, const Value& value, const Value& path,
                   const Value* otherwise = nullptr);
/// A text in lower case, unless case counts; what is no text stays.
Value sort_key(Evaluator& evaluator, const Value& value, bool case_sensitive);

}  // namespace subbyte::jinja
