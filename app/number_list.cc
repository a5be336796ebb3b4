#include "app/number_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/quote.h"

namespace subbyte::app {
namespace {

constexpr std::size_t kMaxNumbers = 1000;

/// The number at the begin of `text`, which loses it.
std::optional<int64_t> take_number(std::string_view& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data() || text[0] == '-') return std::nullopt;
  text.remove_prefix(end - text.data());
  return value;
}

/// "first", "first-last", with "+step" or "*factor" after the last.
struct Range {
  int64_t first = 0;
  int64_t last = 0;
  char by = '+';
  int64_t step = 1;
};

std::optional<Range> parse_range(std::string_view text) {
  const auto first = take_number(text);
  if (!first) return std::nullopt;
  Range range = {*first, *first};
  if (text.empty()) return range;
  if (text[0] != '-') return std::nullopt;
  text.remove_prefix(1);
  const auto last = take_number(text);
  if (!last || *last < *first) return std::nullopt;
  range.last = *last;
  if (text.empty()) return range;
  range.by = text[0];
  text.remove_prefix(1);
  const auto step = take_number(text);
  if (!step || !text.empty()) return std::nullopt;
  range.step = std::min(*step, *last);  // which is as far
  const bool moves_on = range.by == '+' ? *step > 0 : range.by == '*' && *step > 1 && *first > 0;
  return moves_on ? std::optional(range) : std::nullopt;
}

}  // namespace

Result<std::vector<int64_t>> parse_numbers(const std::string& option, const std::string& text,
                                           int64_t least, int64_t most) {
  const auto refuse = [&](std::string_view found) {
    return Error{"usage.numbers",
                 fmt::format("{}: expected numbers from {} to {}, such as 1,2,4 or 1-8 or 0-64+16 "
                             "or 1-8*2, found {}",
                             option, least, most, quote(found))};
  };
  std::vector<int64_t> numbers;
  std::string_view left = text;
  while (true) {
    const std::string_view part = left.substr(0, left.find(','));
    const std::optional<Range> range = parse_range(part);
    if (!range || range->first < least || range->last > most) return refuse(part);
    for (int64_t n = range->first; n <= range->last;) {
      if (numbers.size() == kMaxNumbers) {
        return Error{"usage.numbers", fmt::format("{}: more than {} numbers", option, kMaxNumbers)};
      }
      numbers.push_back(n);
      n = range->by == '+' ? n + range->step : n * range->step;
    }
    if (part.size() == left.size()) return numbers;
    left.remove_prefix(part.size() + 1);
  }
}

}  // namespace subbyte::app
