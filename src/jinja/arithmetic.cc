// The operators of numbers, and those that join and repeat.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "jinja/operations.h"

namespace subbyte::jinja {
namespace {

constexpr std::string_view kSigns[] = {"+", "-", "*", "/", "//", "%", "**"};

[[noreturn]] void refuse_operands(Operator operation, const Value& a, const Value& b) {
  for (const Value* const value : {&a, &b}) {
    if (const auto* const undefined = value->as<Undefined>()) refuse_undefined(*undefined);
    if (value->is<LongInteger>()) refuse_long_integer();
  }
  refuse(kType,
         fmt::format("there is no {} of {} and {}", kSigns[static_cast<std::size_t>(operation)],
                     type_name(a), type_name(b)));
}

[[noreturn]] void refuse_size() {
  refuse(kValue, "the number is too large: integers have 64 bits");
}

[[noreturn]] void refuse_zero() {
  refuse(kValue, "division by zero");
}

int64_t power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if (exponent % 2 == 1 && __builtin_mul_overflow(result, base, &result)) refuse_size();
    exponent /= 2;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) refuse_size();
  }
  return result;
}

/// Rounded down, as Python does.
Value divide_whole(int64_t a, int64_t b, bool wants_rest) {
  if (b == 0) refuse_zero();
  if (b == -1) {
    if (wants_rest) return Value(int64_t{0});
    int64_t result = 0;
    if (__builtin_sub_overflow(int64_t{0}, a, &result)) refuse_size();
    return Value(result);
  }
  const int64_t rest = a % b;
  const bool is_down = rest != 0 && (rest < 0) != (b < 0);
  if (wants_rest) return Value(is_down ? rest + b : rest);
  return Value(a / b - (is_down ? 1 : 0));
}

Value of_integers(Operator operation, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (operation) {
    case Operator::kAdd:
      if (__builtin_add_overflow(a, b, &result)) refuse_size();
      return Value(result);
    case Operator::kSubtract:
      if (__builtin_sub_overflow(a, b, &result)) refuse_size();
      return Value(result);
    case Operator::kMultiply:
      if (__builtin_mul_overflow(a, b, &result)) refuse_size();
      return Value(result);
    case Operator::kDivide:
      if (b == 0) refuse_zero();
      return Value(static_cast<double>(a) / static_cast<double>(b));
    case Operator::kFloorDivide:
      return divide_whole(a, b, false);
    case Operator::kModulo:
      return divide_whole(a, b, true);
    default:
      if (b >= 0) return Value(power(a, b));
      if (a == 0) refuse_zero();
      return Value(std::pow(static_cast<double>(a), static_cast<double>(b)));
  }
}

Value of_floats(Operator operation, double a, double b) {
  const bool divides = operation == Operator::kDivide || operation == Operator::kFloorDivide ||
                       operation == Operator::kModulo;
  if (divides && b == 0) refuse_zero();
  double rest = divides ? std::fmod(a, b) : 0;
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  switch (operation) {
    case Operator::kAdd:
      return Value(a + b);
    case Operator::kSubtract:
      return Value(a - b);
    case Operator::kMultiply:
      return Value(a * b);
    case Operator::kDivide:
      return Value(a / b);
    case Operator::kFloorDivide:
      return Value(std::round((a - rest) / b));
    case Operator::kModulo:
      return Value(rest == 0 ? std::copysign(0.0, b) : rest);
    default:
      if (a == 0 && b < 0) refuse_zero();
      if (a < 0 && b != std::floor(b)) refuse(kValue, "the power is a complex number");
      return Value(std::pow(a, b));
  }
}

/// a + b of Markup and text: the text is escaped first.
Value joined(Heap& heap, const String& a, const String& b) {
  const bool is_markup = a.is_markup || b.is_markup;
  TextBuilder text(heap);
  text.reserve(a->size() + b->size());
  for (const String* const part : {&a, &b}) {
    text.append(is_markup ? **escaped(heap, *part).string() : **part);
  }
  return heap.text(text, is_markup);
}

bool is_plain(const Sequence& sequence) {
  return sequence.kind() == SequenceKind::kList || sequence.kind() == SequenceKind::kTuple;
}

Value joined(Heap& heap, const Sequence& a, const Sequence& b) {
  Values items(heap);
  items.reserve(a.size() + b.size());
  for (const Sequence* const part : {&a, &b}) {
    const std::span<const Value> more = part->items(heap);
    items.insert(items.end(), more.begin(), more.end());
  }
  return heap.list(std::move(items), a.kind());
}

Value repeated(Heap& heap, const Value& value, int64_t count) {
  if (const String* const text = value.string()) {
    TextBuilder result(heap);
    result.repeat(**text, count);
    return heap.text(result, text->is_markup);
  }
  const Sequence& sequence = *value.sequence();
  const auto times = static_cast<std::size_t>(std::max<int64_t>(count, 0));
  const std::size_t bytes = heap.checked_size(sequence.size(), sizeof(Value));
  Values items(heap);
  constexpr std::size_t kValuesPerStep = 4;
  items.reserve(heap.checked_size(bytes, times) / sizeof(Value));
  heap.step(items.capacity() / kValuesPerStep);
  const std::span<const Value> once = sequence.items(heap);
  for (std::size_t i = 0; i < times && !once.empty(); ++i) {
    items.insert(items.end(), once.begin(), once.end());
  }
  return heap.list(std::move(items), sequence.kind());
}

bool is_repeatable(const Value& value) {
  return value.string() != nullptr || (value.sequence() != nullptr && is_plain(*value.sequence()));
}

}  // namespace

void refuse_long_integer() {
  refuse(kValue, "a number of more than 64 bits is computed with, which templates cannot do here");
}

int64_t clamped_sum(int64_t a, int64_t b) {
  int64_t sum = 0;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return a < 0 ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
}

int64_t clamped_difference(int64_t a, int64_t b) {
  int64_t difference = 0;
  if (!__builtin_sub_overflow(a, b, &difference)) return difference;
  return a < 0 ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
}

std::optional<double> number(const Value& value) {
  if (value.is<LongInteger>()) refuse_long_integer();
  if (const auto* const real = value.as<double>()) return *real;
  int64_t whole = 0;
  if (!value.integer(whole)) return std::nullopt;
  return static_cast<double>(whole);
}

Value arithmetic(Heap& heap, Operator operation, const Value& a, const Value& b) {
  heap.step();
  int64_t left = 0;
  int64_t right = 0;
  const bool a_is_whole = a.integer(left);
  const bool b_is_whole = b.integer(right);
  if (a_is_whole && b_is_whole) return of_integers(operation, left, right);
  if (is_numeric(a) && is_numeric(b)) return of_floats(operation, *number(a), *number(b));
  if (operation == Operator::kAdd) {
    if (a.string() != nullptr && b.string() != nullptr)
      return joined(heap, *a.string(), *b.string());
    const Sequence* const s = a.sequence();
    const Sequence* const t = b.sequence();
    if (s != nullptr && t != nullptr && s->kind() == t->kind() && is_plain(*s)) {
      return joined(heap, *s, *t);
    }
  }
  if (operation == Operator::kMultiply && b_is_whole && is_repeatable(a)) {
    return repeated(heap, a, right);
  }
  if (operation == Operator::kMultiply && a_is_whole && is_repeatable(b)) {
    return repeated(heap, b, left);
  }
  if (operation == Operator::kModulo && a.string() != nullptr) {
    return percent_format(heap, *a.string(), b);
  }
  refuse_operands(operation, a, b);
}

Value negative(const Value& value) {
  int64_t whole = 0;
  if (value.integer(whole)) {
    int64_t result = 0;
    if (__builtin_sub_overflow(int64_t{0}, whole, &result)) refuse_size();
    return Value(result);
  }
  if (const auto* const real = value.as<double>()) return Value(-*real);
  refuse_operands(Operator::kSubtract, Value(int64_t{0}), value);
}

}  // namespace subbyte::jinja
