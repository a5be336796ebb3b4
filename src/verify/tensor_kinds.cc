#include "verify/tensor_kinds.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string>
#include <tuple>

namespace subbyte {
namespace {

using Parts = std::vector<std::string_view>;

constexpr std::size_t kMaxDigits = 9;

Parts split(std::string_view name) {
  Parts parts;
  while (true) {
    const std::size_t dot = name.find('.');
    parts.push_back(name.substr(0, dot));
    if (dot == std::string_view::npos) return parts;
    name.remove_prefix(dot + 1);
  }
}

/// Of a part that is a number as one writes it.
std::optional<int64_t> number_in(std::string_view part) {
  const bool has_zeros = part.size() > 1 && part.front() == '0';
  if (part.empty() || part.size() > kMaxDigits || has_zeros) return std::nullopt;
  int64_t number = 0;
  const auto [end, failure] = std::from_chars(part.data(), part.data() + part.size(), number);
  if (failure != std::errc() || end != part.data() + part.size() || number < 0) return std::nullopt;
  return number;
}

/// Parts that begin with a number, which ranges do, come first and in the order of that number.
std::tuple<bool, int64_t, std::string_view> order_of(std::string_view part) {
  const auto number = number_in(part.substr(0, part.find_first_of(",-")));
  return {!number, number.value_or(0), part};
}

/// "0-3,7" of numbers in ascending order.
std::string ranges_of(std::span<const int64_t> numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    if (!text.empty()) text += ',';
    text += std::to_string(numbers[i]);
    if (end - i > 1) text += '-' + std::to_string(numbers[end - 1]);
    i = end;
  }
  return text;
}

struct Group {
  std::vector<int64_t> numbers;
  TensorKind kind;
};

/// Joins the kinds whose names differ in the number of part `place` alone.
std::vector<TensorKind> join(std::vector<TensorKind> kinds, std::size_t place) {
  std::vector<TensorKind> joined;
  using Key = std::tuple<std::string, std::string, std::string, std::vector<uint64_t>, bool>;
  std::map<Key, Group> groups;
  for (TensorKind& kind : kinds) {
    Parts parts = split(kind.weight.name);
    const auto number = place < parts.size() ? number_in(parts[place]) : std::nullopt;
    if (!number) {
      joined.push_back(std::move(kind));
      continue;
    }
    parts[place] = "#";
    const InspectedWeight& weight = kind.weight;
    Group& group = groups[{fmt::format("{}", fmt::join(parts, ".")), weight.flavour, weight.format,
                           weight.shape, weight.act_order}];
    group.numbers.push_back(*number);
    if (group.numbers.size() == 1) {
      group.kind = std::move(kind);
      continue;
    }
    group.kind.weight.parameters += weight.parameters;
    group.kind.weight.bytes += weight.bytes;
    group.kind.count += kind.count;
  }
  for (auto& [key, group] : groups) {
    std::ranges::sort(group.numbers);
    const std::string ranges = ranges_of(group.numbers);
    const std::string name = group.kind.weight.name;
    Parts parts = split(name);
    parts[place] = ranges;
    group.kind.weight.name = fmt::format("{}", fmt::join(parts, "."));
    joined.push_back(std::move(group.kind));
  }
  return joined;
}

}  // namespace

bool comes_before(std::string_view a, std::string_view b) {
  const Parts first = split(a);
  const Parts second = split(b);
  return std::ranges::lexicographical_compare(first, second, {}, order_of, order_of);
}

std::vector<TensorKind> find_tensor_kinds(std::span<const InspectedWeight> weights) {
  std::vector<TensorKind> kinds;
  std::size_t max_parts = 0;
  for (const InspectedWeight& weight : weights) {
    kinds.push_back({weight, 1});
    max_parts = std::max(max_parts, split(weight.name).size());
  }
  for (std::size_t place = max_parts; place-- > 0;) kinds = join(std::move(kinds), place);
  std::ranges::sort(kinds, comes_before, [](const TensorKind& kind) { return kind.weight.name; });
  return kinds;
}

}  // namespace subbyte
