#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "jinja/operations.h"

namespace subbyte::jinja {
namespace {

constexpr std::string_view kSigns[] = {"+", "-", "*", "/", "//", "%", "**"};

[[noreturn]] void refuse_operands(Operator operation, const Value& a, const Value& b) {
  for (const Value* const value : {&a, &b}) {
    const auto* const undefined = value->as<Undefined>();
    if (undefined == nullptr) continue;
    refuse(undefined->is_unsafe ? kUnsafeUse : kUndefined,
           undefined->why ? *undefined->why : "the value is undefined");
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
  heap.take_bytes(static_cast<int64_t>(a.text->size() + b.text->size()));
  OriginText text = is_markup && !a.is_markup ? escaped(*a.text) : *a.text;
  text.append(is_markup && !b.is_markup ? escaped(*b.text) : *b.text);
  return heap.text(std::move(text), is_markup);
}

bool is_plain_sequence(const Sequence& sequence) {
  return sequence.kind == SequenceKind::kList || sequence.kind == SequenceKind::kTuple;
}

Value repeated(Heap& heap, const Value& value, int64_t count) {
  const auto times = static_cast<std::size_t>(std::max<int64_t>(count, 0));
  const auto charge = [&](std::size_t bytes) {
    int64_t all = 0;
    if (__builtin_mul_overflow(static_cast<int64_t>(bytes), static_cast<int64_t>(times), &all)) {
      refuse(kLimit, "the result of * is too long");
    }
    heap.take_bytes(all);
  };
  if (const String* const text = value.string()) {
    charge(text->text->size());
    OriginText result;
    if (text->text->size() > 0) {
      for (std::size_t i = 0; i < times; ++i) result.append(*text->text);
    }
    return heap.text(std::move(result), text->is_markup);
  }
  const Sequence& sequence = *value.sequence();
  charge(sequence.items.size() * sizeof(Value));
  std::vector<Value> items;
  if (!sequence.items.empty()) {
    for (std::size_t i = 0; i < times; ++i) {
      items.insert(items.end(), sequence.items.begin(), sequence.items.end());
    }
  }
  return heap.list(std::move(items), sequence.kind);
}

bool is_repeatable(const Value& value) {
  return value.string() != nullptr ||
         (value.sequence() != nullptr && is_plain_sequence(*value.sequence()));
}

}  // namespace

std::optional<double> number(const Value& value) {
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
  const auto x = number(a);
  const auto y = number(b);
  if (x && y) return of_floats(operation, *x, *y);
  if (operation == Operator::kAdd) {
    if (a.string() != nullptr && b.string() != nullptr)
      return joined(heap, *a.string(), *b.string());
    const Sequence* const s = a.sequence();
    const Sequence* const t = b.sequence();
    if (s != nullptr && t != nullptr && s->kind == t->kind && is_plain_sequence(*s)) {
      std::vector<Value> items = s->items;
      items.insert(items.end(), t->items.begin(), t->items.end());
      return heap.list(std::move(items), s->kind);
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
