#include "jinja/filters.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>

#include "base/quote.h"
#include "jinja/evaluator.h"
#include "jinja/operations.h"

namespace subbyte::jinja {
namespace {

/// Filters of Jinja that are known, and refused where they run.
constexpr std::string_view kRefused[] = {"filesizeformat", "pprint",   "random",
                                         "urlize",         "wordwrap", "xmlattr"};

std::array<std::span<const Filter>, 4> all_filters() {
  return {text_filters(), number_filters(), list_filters(), choosing_filters()};
}

const Filter* find_filter(std::string_view name) {
  for (const auto filters : all_filters()) {
    const auto found = std::ranges::find(filters, name, &Filter::name);
    if (found != filters.end()) return &*found;
  }
  return nullptr;
}

}  // namespace

std::vector<std::string_view> filter_names() {
  std::vector<std::string_view> names(std::begin(kRefused), std::end(kRefused));
  for (const auto filters : all_filters()) {
    for (const Filter& filter : filters) names.push_back(filter.name);
  }
  return names;
}

bool is_filter(std::string_view name) {
  return find_filter(name) != nullptr || std::ranges::find(kRefused, name) != std::end(kRefused);
}

Value call_filter(Evaluator& evaluator, std::string_view name, const Value& value,
                  const Arguments& arguments) {
  evaluator.heap().step();
  if (const Filter* const filter = find_filter(name))
    return filter->run(evaluator, value, arguments);
  if (is_filter(name)) {
    refuse(kUnsupported, fmt::format("the filter {} is not supported", quote(name)));
  }
  refuse(kSyntax, fmt::format("there is no filter {}", quote(name)));
}

Value attribute_at(Evaluator& evaluator, const Value& value, const Value& path,
                   const Value* otherwise) {
  const auto step = [&](const Value& from, const Value& key) {
    Value next = item_of(evaluator, from, key);
    return next.is_undefined() && otherwise != nullptr ? *otherwise : next;
  };
  const String* const text = path.string();
  if (text == nullptr) return step(value, path);
  Value result = value;
  std::string_view rest = text->bytes(evaluator.heap());
  while (true) {
    const std::size_t dot = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, dot);
    int64_t index = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool is_index =
        error == std::errc() && end == part.data() + part.size() && part[0] != '-';
    evaluator.heap().step();
    result = step(result, is_index ? Value(index) : evaluator.heap().text(part));
    if (dot == rest.size()) return result;
    rest.remove_prefix(dot + 1);
  }
}

Value sort_key(Evaluator& evaluator, const Value& value, bool case_sensitive) {
  const String* const text = value.string();
  if (text == nullptr || case_sensitive) return value;
  return with_letters(evaluator.heap(), *text, "lower");
}

}  // namespace subbyte::jinja
