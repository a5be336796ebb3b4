// Filters that give numbers, or what stands for a value that is not there.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "jinja/evaluator.h"
#include "jinja/filters.h"
#include "jinja/operations.h"

namespace subbyte::jinja {
namespace {

[[noreturn]] void refuse_undefined(const Undefined& undefined) {
  refuse(kUndefined, undefined.why ? *undefined.why : "the value is undefined");
}

/// Digits with underscores between them, as Python's literals may have.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      result += text[i];
      continue;
    }
    const bool is_between =
        i > 0 && i + 1 < text.size() && text[i - 1] != '_' && text[i + 1] != '_';
    if (!is_between) return std::nullopt;
  }
  return result;
}

std::optional<int64_t> integer_of(std::string_view text, int64_t base) {
  const Range range = stripped(text, true, true);
  auto digits = without_underscores(text.substr(range.begin, range.end - range.begin));
  if (!digits || digits->empty()) return std::nullopt;
  const bool is_negative = (*digits)[0] == '-';
  if (is_negative || (*digits)[0] == '+') digits->erase(0, 1);
  const std::string_view prefix = base == 16 ? "0x" : base == 8 ? "0o" : base == 2 ? "0b" : "";
  if (!prefix.empty() && lower(digits->substr(0, 2)) == prefix) digits->erase(0, 2);
  if (digits->empty() || (*digits)[0] == '-') return std::nullopt;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits->data(), digits->data() + digits->size(), value,
                                            static_cast<int>(base));
  if (error == std::errc::result_out_of_range) {
    refuse(kValue, "the number is too large: integers have 64 bits");
  }
  if (error != std::errc() || end != digits->data() + digits->size()) return std::nullopt;
  return is_negative ? -value : value;
}

std::optional<double> float_of(std::string_view text) {
  const Range range = stripped(text, true, true);
  auto digits = without_underscores(text.substr(range.begin, range.end - range.begin));
  if (!digits || digits->empty()) return std::nullopt;
  if ((*digits)[0] == '+') digits->erase(0, 1);
  if (digits->empty() || (*digits)[0] == '+') return std::nullopt;
  if (digits->find_first_of("xX(") != std::string::npos) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(digits->data(), digits->data() + digits->size(), value);
  if (error != std::errc() || end != digits->data() + digits->size()) return std::nullopt;
  return value;
}

Value run_int(Evaluator&, const Value& value, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"default", "base"};
  const Bound bound("int", arguments, kNames, 0);
  const Value otherwise = bound.has(0) ? *bound[0] : Value(int64_t{0});
  if (const auto* const undefined = value.as<Undefined>()) refuse_undefined(*undefined);
  int64_t whole = 0;
  if (value.integer(whole)) return Value(whole);
  if (const auto* const real = value.as<double>()) {
    if (!std::isfinite(*real)) return otherwise;
    return Value(whole_of(*real));
  }
  const String* const text = value.string();
  if (text == nullptr) return otherwise;
  const int64_t base = bound.integer(1, 10);
  if (base < 2 || base > 36) refuse(kUnsupported, "int takes a base from 2 to 36");
  if (const auto found = integer_of(text->bytes(), base)) return Value(*found);
  const auto real = float_of(text->bytes());
  if (!real || !std::isfinite(*real)) return otherwise;
  return Value(whole_of(*real));
}

Value run_float(Evaluator&, const Value& value, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"default"};
  const Bound bound("float", arguments, kNames, 0);
  if (const auto* const undefined = value.as<Undefined>()) refuse_undefined(*undefined);
  if (const auto found = number(value)) return Value(*found);
  if (const String* const text = value.string()) {
    if (const auto found = float_of(text->bytes())) return Value(*found);
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
  if (!std::isfinite(value) || digits > 20) return value;
  if (digits < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-digits));
    return std::nearbyint(value / unit) * unit;
  }
  const std::string text = fmt::format("{:.{}f}", value, digits);
  double result = 0;
  std::from_chars(text.data(), text.data() + text.size(), result);
  return result;
}

Value run_round(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"precision", "method"};
  const Bound bound("round", arguments, kNames, 0);
  const int64_t digits = bound.integer(0, 0);
  const std::string method = bound.has(1) ? bound.text(1).bytes() : "common";
  if (const auto* const undefined = value.as<Undefined>()) refuse_undefined(*undefined);
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
  const Value unit =
      arithmetic(evaluator.heap(), Operator::kPower, Value(int64_t{10}), Value(digits));
  const double scaled = *real * *number(unit);
  return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / *number(unit));
}

Value run_length(Evaluator&, const Value& value, const Arguments& arguments) {
  const Bound bound("length", arguments, {}, 0);
  if (const auto length = length_of(value)) return Value(*length);
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
  const std::vector<Value> items = items_of(heap, value);
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
