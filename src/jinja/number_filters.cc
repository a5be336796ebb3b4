// Filters that give numbers, or what stands for a value that is not there.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "jinja/evaluator.h"
#include "jinja/filters.h"
#include "jinja/operations.h"

namespace subbyte::jinja {
namespace {

/// A number as Python's literals have it, with white space around it and underscores between its
/// digits, in a form that from_chars() takes; empty for what is none.
Bytes digits_of(Meter& meter, std::string_view text) {
  const Range range = stripped(text, true, true);
  text = text.substr(range.begin, range.end - range.begin);
  Bytes result(meter);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      result += text[i];
      continue;
    }
    const bool is_between =
        i > 0 && i + 1 < text.size() && text[i - 1] != '_' && text[i + 1] != '_';
    if (!is_between) return Bytes(meter);
  }
  return result;
}

std::optional<Value> integer_of(Heap& heap, std::string_view text, int64_t base) {
  const Bytes held = digits_of(heap, text);
  std::string_view digits = held;
  if (digits.empty()) return std::nullopt;
  const bool is_negative = digits[0] == '-';
  if (is_negative || digits[0] == '+') digits.remove_prefix(1);
  const char prefix = base == 16 ? 'x' : base == 8 ? 'o' : base == 2 ? 'b' : '\0';
  const bool has_prefix =
      prefix != 0 && digits.size() > 1 && digits[0] == '0' && (digits[1] | 0x20) == prefix;
  if (has_prefix) digits.remove_prefix(2);
  if (digits.empty() || digits[0] == '-') return std::nullopt;
  int64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, static_cast<int>(base));
  if (end != digits.data() + digits.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) refuse_long_integer();
  if (error != std::errc()) return std::nullopt;
  return Value(is_negative ? -value : value);
}

std::optional<double> float_of(Heap& heap, std::string_view text) {
  const Bytes held = digits_of(heap, text);
  std::string_view digits = held;
  if (!digits.empty() && digits[0] == '+') digits.remove_prefix(1);
  if (digits.empty() || digits[0] == '+') return std::nullopt;
  if (digits.find_first_of("xX(") != std::string_view::npos) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

Value run_int(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"default", "base"};
  const Bound bound("int", arguments, kNames, 0);
  const Value otherwise = bound.has(0) ? *bound[0] : Value(int64_t{0});
  if (const auto* const undefined = value.as<Undefined>()) refuse_undefined(*undefined);
  int64_t whole = 0;
  if (value.integer(whole)) return Value(whole);
  if (value.is<LongInteger>()) return value;
  if (const auto* const real = value.as<double>()) {
    if (!std::isfinite(*real)) return otherwise;
    return Value(whole_of(*real));
  }
  const String* const text = value.string();
  if (text == nullptr) return otherwise;
  const int64_t base = bound.integer(1, 10);
  if (base < 2 || base > 36) refuse(kUnsupported, "int takes a base from 2 to 36");
  Heap& heap = evaluator.heap();
  if (const auto found = integer_of(heap, text->bytes(heap), base)) return *found;
  const auto real = float_of(heap, text->bytes(heap));
  if (!real || !std::isfinite(*real)) return otherwise;
  return Value(whole_of(*real));
}

Value run_float(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"default"};
  const Bound bound("float", arguments, kNames, 0);
  if (const auto* const undefined = value.as<Undefined>()) refuse_undefined(*undefined);
  Heap& heap = evaluator.heap();
  if (const auto* const digits = value.as<LongInteger>()) {
    const auto found = float_of(heap, digits->digits->bytes(heap));
    if (!found) refuse(kValue, "the number is too large for a float");
    return Value(*found);
  }
  if (const auto found = number(value)) return Value(*found);
  if (const String* const text = value.string()) {
    if (const auto found = float_of(heap, text->bytes(heap))) return Value(*found);
  }
  return bound.has(0) ? *bound[0] : Value(0.0);
}

Value run_abs(Evaluator&, const Value& value, const Arguments& arguments) {
  const Bound bound("abs", arguments, {}, 0);
  const auto real = number(value);
  if (!real) refuse(kType, fmt::format("abs takes a number, found {}", type_name(value)));
  int64_t whole = 0;
  if (value.integer(whole)) return whole < 0 ? negative(value) : Value(whole);
  return Value(std::abs(*real));
}

/// Python's round(): to the nearest number with so many digits, to an even one from the middle.
double rounded(double value, int64_t digits) {
  constexpr double kWhole = 0x1p53;  // from there on there are no digits after the point
  constexpr int64_t kMost = std::numeric_limits<double>::max_exponent10;
  if (!std::isfinite(value) || digits > 20 || value == 0) return value;
  if (digits < 0) {
    if (digits < -kMost) return std::copysign(0.0, value);
    const double unit = std::pow(10.0, static_cast<double>(-digits));
    return std::nearbyint(value / unit) * unit;
  }
  if (std::abs(value) >= kWhole) return value;
  const std::string text = fmt::format("{:.{}f}", value, digits);
  double result = 0;
  std::from_chars(text.data(), text.data() + text.size(), result);
  return result;
}

Value run_round(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"precision", "method"};
  const Bound bound("round", arguments, kNames, 0);
  const int64_t digits = bound.integer(0, 0);
  Heap& heap = evaluator.heap();
  const std::string_view method = bound.has(1) ? bound.text(1).bytes(heap) : "common";
  if (const auto* const undefined = value.as<Undefined>()) refuse_undefined(*undefined);
  if (value.is<LongInteger>() && method == "common" && digits >= 0) return value;
  const auto real = number(value);
  if (!real) refuse(kType, fmt::format("round takes a number, found {}", type_name(value)));
  if (method != "common" && method != "ceil" && method != "floor") {
    refuse(kValue, "round knows the methods common, ceil and floor");
  }
  int64_t whole = 0;
  if (method == "common") {
    if (!value.integer(whole)) return Value(rounded(*real, digits));
    return digits >= 0 ? Value(whole) : Value(whole_of(rounded(*real, digits)));
  }
  const Value unit = arithmetic(heap, Operator::kPower, Value(int64_t{10}), Value(digits));
  const double scaled = *real * *number(unit);
  return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / *number(unit));
}

Value run_length(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  const Bound bound("length", arguments, {}, 0);
  if (const auto length = length_of(evaluator.heap(), value)) {
    return Value(static_cast<int64_t>(*length));
  }
  refuse(kType, fmt::format("a value of the type {} has no length", type_name(value)));
}

Value run_default(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"default_value", "boolean"};
  const Bound bound("default", arguments, kNames, 0);
  const bool is_missing = value.is_undefined() || (bound.truth(1, false) && !truth(value));
  if (!is_missing) return value;
  return bound.has(0) ? *bound[0] : evaluator.heap().text("");
}

Value run_sum(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"attribute", "start"};
  const Bound bound("sum", arguments, kNames, 0);
  Heap& heap = evaluator.heap();
  Value sum = bound.has(1) ? *bound[1] : Value(int64_t{0});
  if (sum.string() != nullptr) refuse(kType, "sum adds no texts");
  for (const Value& item : items_of(heap, value)) {
    sum = arithmetic(heap, Operator::kAdd, sum,
                     bound.says(0) ? attribute_at(evaluator, item, *bound[0]) : item);
  }
  return sum;
}

Value least(Evaluator& evaluator, const Value& value, const Arguments& arguments, bool is_max) {
  constexpr std::string_view kNames[] = {"case_sensitive", "attribute"};
  const Bound bound(is_max ? "max" : "min", arguments, kNames, 0);
  Heap& heap = evaluator.heap();
  const Values items = items_of(heap, value);
  if (items.empty()) return heap.undefined("there is no item in an empty list");
  const auto key = [&](const Value& item) {
    return sort_key(evaluator, bound.says(1) ? attribute_at(evaluator, item, *bound[1]) : item,
                    bound.truth(0, false));
  };
  std::size_t best = 0;
  Value best_key = key(items[0]);
  for (std::size_t i = 1; i < items.size(); ++i) {
    Value other = key(items[i]);
    const bool is_better =
        is_max ? compare(heap, Operator::kGreater, other, best_key) : less(heap, other, best_key);
    if (!is_better) continue;
    best = i;
    best_key = std::move(other);
  }
  return items[best];
}

Value run_min(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  return least(evaluator, value, arguments, false);
}

Value run_max(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  return least(evaluator, value, arguments, true);
}

constexpr Filter kFilters[] = {
    {"int", run_int},       {"float", run_float},  {"abs", run_abs},         {"round", run_round},
    {"length", run_length}, {"count", run_length}, {"default", run_default}, {"d", run_default},
    {"sum", run_sum},       {"min", run_min},      {"max", run_max}};

}  // namespace

std::span<const Filter> number_filters() {
  return kFilters;
}

}  // namespace subbyte::jinja
