// Sums, products, comparisons and functions of numbers.
#include <algorithm>
#include <cmath>

#include "machine.h"
#include "report.h"

namespace subbyte::interpreter {
namespace {

// --- floating point

double combined_numbers(Operation operation, double a, double b) {
  switch (operation) {
    case Operation::kAdd:
      return a + b;
    case Operation::kSubtract:
      return a - b;
    case Operation::kMultiply:
      return a * b;
    case Operation::kDivide:
      return a / b;
    case Operation::kMin:
      return std::fmin(a, b);
    case Operation::kMax:
      return std::fmax(a, b);
    default:
      stop("no operation of floating-point numbers");
  }
}

/// The nearest number of a type, or, of f32, the next one in the direction of the instruction.
uint64_t rounded(const Instruction& in, Type type, double exact) {
  if (type != Type::kF32 || in.rounding == Rounding::kNearest) return rounded_bits(type, exact);
  auto near = static_cast<float>(exact);
  const auto is_above = static_cast<double>(near) > exact;
  const auto is_below = static_cast<double>(near) < exact;
  const bool wants_down =
      in.rounding == Rounding::kDown || (in.rounding == Rounding::kZero && exact > 0);
  const bool wants_up =
      in.rounding == Rounding::kUp || (in.rounding == Rounding::kZero && exact < 0);
  if (is_above && wants_down) near = std::nextafter(near, -INFINITY);
  if (is_below && wants_up) near = std::nextafter(near, INFINITY);
  return bits_of(near);
}

float clamped(float value) {
  return value != value ? 0 : std::min(1.0f, std::max(0.0f, value));
}

/// Sums and products of two f32 are the same rounded from double: double has more than twice the
/// bits of each.
uint64_t combined_floats(const Instruction& in, Type type, uint64_t a, uint64_t b) {
  const double exact = combined_numbers(in.operation, number_of(type, a), number_of(type, b));
  const uint64_t result = rounded(in, type, exact);
  return in.saturates && type == Type::kF32 ? bits_of(clamped(float_of(result))) : result;
}

uint64_t fused_floats(const Instruction& in, Type type, uint64_t a, uint64_t b, uint64_t c) {
  if (type != Type::kF32) {
    return rounded_bits(type, std::fma(number_of(type, a), number_of(type, b), number_of(type, c)));
  }
  if (in.rounding != Rounding::kNearest) {
    return rounded(in, type, std::fma(number_of(type, a), number_of(type, b), number_of(type, c)));
  }
  const float result = std::fma(float_of(a), float_of(b), float_of(c));
  return bits_of(in.saturates ? clamped(result) : result);
}

// --- integers

__extension__ using Signed128 = __int128;
__extension__ using Unsigned128 = unsigned __int128;

uint64_t high_product(Type type, uint64_t a, uint64_t b) {
  if (is_signed(type)) {
    const Signed128 product = static_cast<Signed128>(signed_bits(type, a)) * signed_bits(type, b);
    return low_bits(type, static_cast<uint64_t>(product >> (8 * width(type))));
  }
  const Unsigned128 product = static_cast<Unsigned128>(low_bits(type, a)) * low_bits(type, b);
  return low_bits(type, static_cast<uint64_t>(product >> (8 * width(type))));
}

/// A product of twice the bits of its factors.
uint64_t wide_product(Type type, uint64_t a, uint64_t b) {
  const uint64_t product = is_signed(type)
                               ? static_cast<uint64_t>(signed_bits(type, a) * signed_bits(type, b))
                               : low_bits(type, a) * low_bits(type, b);
  return width(type) == 4 ? product : low_bits(Type::kU32, product);
}

uint64_t integer_product(const Instruction& in, uint64_t a, uint64_t b) {
  if (in.wide) return wide_product(in.type, a, b);
  return in.high ? high_product(in.type, a, b) : low_bits(in.type, a * b);
}

template <typename Integer>
Integer divided(Operation operation, Integer a, Integer b) {
  if (b == 0) stop("a division by zero");
  return operation == Operation::kDivide ? a / b : a % b;
}

template <typename Integer>
uint64_t combined_integers(const Instruction& in, Integer a, Integer b) {
  switch (in.operation) {
    case Operation::kAdd:
      return static_cast<uint64_t>(a) + static_cast<uint64_t>(b);
    case Operation::kSubtract:
      return static_cast<uint64_t>(a) - static_cast<uint64_t>(b);
    case Operation::kDivide:
    case Operation::kRemainder:
      return static_cast<uint64_t>(divided(in.operation, a, b));
    case Operation::kMin:
      return static_cast<uint64_t>(std::min(a, b));
    case Operation::kMax:
      return static_cast<uint64_t>(std::max(a, b));
    default:
      stop("no operation of integers");
  }
}

// --- comparisons

template <typename Number>
bool compared(Comparison comparison, Number a, Number b) {
  switch (comparison) {
    case Comparison::kEqual:
      return a == b;
    case Comparison::kNotEqual:
      return a != b;
    case Comparison::kLess:
      return a < b;
    case Comparison::kLessEqual:
      return a <= b;
    case Comparison::kGreater:
      return a > b;
    case Comparison::kGreaterEqual:
      return a >= b;
    default:
      stop("no comparison");
  }
}

bool compare(const Instruction& in, Type type, uint64_t a, uint64_t b) {
  if (is_float(type)) {
    const double x = number_of(type, a);
    const double y = number_of(type, b);
    const bool has_nan = std::isnan(x) || std::isnan(y);
    if (in.comparison == Comparison::kNumbers) return !has_nan;
    if (in.comparison == Comparison::kNan) return has_nan;
    return has_nan ? in.or_nan : compared(in.comparison, x, y);
  }
  if (is_signed(type)) {
    return compared(in.comparison, signed_bits(type, a), signed_bits(type, b));
  }
  return compared(in.comparison, low_bits(type, a), low_bits(type, b));
}

// --- instructions

uint64_t source(const Thread& thread, const Instruction& in, size_t i) {
  return value_of(thread, in.operands[i]);
}

void combine(Thread& thread, const Instruction& in) {
  set(thread, in.operands[0], combined(in, source(thread, in, 1), source(thread, in, 2)));
}

/// mad and fma.
void fuse(Thread& thread, const Instruction& in) {
  const uint64_t a = source(thread, in, 1);
  const uint64_t b = source(thread, in, 2);
  const uint64_t c = source(thread, in, 3);
  uint64_t result;
  if (const Type half = half_of(in.type); half != Type::kNone) {
    result = each_half([&](auto... bits) { return fused_floats(in, half, bits...); }, a, b, c);
  } else if (is_float(in.type)) {
    result = fused_floats(in, in.type, a, b, c);
  } else {
    const uint64_t sum = integer_product(in, a, b) + c;
    result = !in.wide              ? low_bits(in.type, sum)
             : width(in.type) == 4 ? sum
                                   : low_bits(Type::kU32, sum);
  }
  set(thread, in.operands[0], result);
}

/// The bits that are signs of a type of floating-point numbers, or 0.
uint64_t sign_bits(Type type) {
  switch (type) {
    case Type::kF16:
    case Type::kBf16:
      return 0x8000;
    case Type::kF16x2:
    case Type::kBf16x2:
      return 0x80008000;
    case Type::kF32:
      return 0x80000000;
    case Type::kF64:
      return uint64_t{1} << 63;
    default:
      return 0;
  }
}

void negate(Thread& thread, const Instruction& in) {
  const uint64_t a = source(thread, in, 1);
  const uint64_t signs = sign_bits(in.type);
  set(thread, in.operands[0], signs != 0 ? a ^ signs : low_bits(in.type, -a));
}

void absolute(Thread& thread, const Instruction& in) {
  const uint64_t a = source(thread, in, 1);
  const uint64_t signs = sign_bits(in.type);
  const uint64_t size = signed_bits(in.type, a) < 0 ? -a : a;
  set(thread, in.operands[0], signs != 0 ? a & ~signs : low_bits(in.type, size));
}

void copy_sign(Thread& thread, const Instruction& in) {
  const uint64_t signs = sign_bits(in.type);
  set(thread, in.operands[0], (source(thread, in, 1) & signs) | (source(thread, in, 2) & ~signs));
}

void set_predicate(Thread& thread, const Instruction& in) {
  const bool holds = compare(in, in.type, source(thread, in, 1), source(thread, in, 2));
  const auto with_other = [&](bool own) {
    if (in.operands.size() < 4) return own;
    const bool other = truth_of(thread, in.operands[3]);
    if (in.operation == Operation::kAnd) return own && other;
    return in.operation == Operation::kOr ? own || other : own != other;
  };
  const uint64_t first = with_other(holds) ? 1 : 0;
  const uint64_t second = with_other(!holds) ? 1 : 0;
  set(thread, in.operands[0], first);
  if (in.operands[0].second >= 0) thread.frame().registers[in.operands[0].second] = second;
}

void set_value(Thread& thread, const Instruction& in) {
  const bool holds = compare(in, in.type2, source(thread, in, 1), source(thread, in, 2));
  const uint64_t yes = in.type == Type::kF32 ? bits_of(1) : 0xffffffff;
  set(thread, in.operands[0], holds ? yes : 0);
}

void select(Thread& thread, const Instruction& in) {
  set(thread, in.operands[0], source(thread, in, truth_of(thread, in.operands[3]) ? 1 : 2));
}

void select_by_sign(Thread& thread, const Instruction& in) {
  const uint64_t c = source(thread, in, 3);
  const bool first =
      is_float(in.type2) ? number_of(in.type2, c) >= 0 : signed_bits(in.type2, c) >= 0;
  set(thread, in.operands[0], source(thread, in, first ? 1 : 2));
}

void add_difference(Thread& thread, const Instruction& in) {
  const uint64_t a = source(thread, in, 1);
  const uint64_t b = source(thread, in, 2);
  const bool is_less = is_signed(in.type) ? signed_bits(in.type, a) < signed_bits(in.type, b)
                                          : low_bits(in.type, a) < low_bits(in.type, b);
  set(thread, in.operands[0], low_bits(in.type, (is_less ? b - a : a - b) + source(thread, in, 3)));
}

int64_t byte_of(Type type, uint64_t bits, int index) {
  const uint64_t byte = bits >> (8 * index) & 0xff;
  return is_signed(type) ? static_cast<int8_t>(byte) : static_cast<int64_t>(byte);
}

/// dp4a: four products of bytes and a sum.
void add_products(Thread& thread, const Instruction& in) {
  const uint64_t a = source(thread, in, 1);
  const uint64_t b = source(thread, in, 2);
  auto sum = static_cast<int64_t>(source(thread, in, 3));
  for (int i = 0; i < 4; ++i) sum += byte_of(in.type, a, i) * byte_of(in.type2, b, i);
  set(thread, in.operands[0], low_bits(Type::kU32, static_cast<uint64_t>(sum)));
}

// --- functions, which a GPU approximates and which are exact here

template <double (*kFunction)(double)>
void apply(Thread& thread, const Instruction& in) {
  const uint64_t a = source(thread, in, 1);
  const Type half = half_of(in.type);
  const auto of = [&](Type type, uint64_t bits) {
    return rounded_bits(type, kFunction(number_of(type, bits)));
  };
  set(thread, in.operands[0],
      half == Type::kNone ? of(in.type, a)
                          : each_half([&](uint64_t bits) { return of(half, bits); }, a));
}

double reciprocal(double x) {
  return 1 / x;
}
double reciprocal_root(double x) {
  return 1 / std::sqrt(x);
}

bool has_property(const std::string& property, double x) {
  if (property == "finite") return std::isfinite(x);
  if (property == "infinite") return std::isinf(x);
  if (property == "notanumber") return std::isnan(x);
  if (property == "number") return !std::isnan(x);
  stop("no such property is known");
}

void test_property(Thread& thread, const Instruction& in) {
  const double x = number_of(in.type, source(thread, in, 1));
  set(thread, in.operands[0], has_property(in.words[1], x) ? 1 : 0);
}

constexpr ThreadInstruction kInstructions[] = {
    {"add", combine},
    {"sub", combine},
    {"mul", combine},
    {"div", combine},
    {"rem", combine},
    {"min", combine},
    {"max", combine},
    {"mad", fuse},
    {"fma", fuse},
    {"neg", negate},
    {"abs", absolute},
    {"copysign", copy_sign},
    {"setp", set_predicate},
    {"set", set_value},
    {"selp", select},
    {"slct", select_by_sign},
    {"sad", add_difference},
    {"dp4a", add_products},
    {"ex2", apply<std::exp2>},
    {"lg2", apply<std::log2>},
    {"rcp", apply<reciprocal>},
    {"sqrt", apply<std::sqrt>},
    {"rsqrt", apply<reciprocal_root>},
    {"sin", apply<std::sin>},
    {"cos", apply<std::cos>},
    {"tanh", apply<std::tanh>},
    {"testp", test_property},
};

}  // namespace

uint64_t combined(const Instruction& in, uint64_t a, uint64_t b) {
  if (const Type half = half_of(in.type); half != Type::kNone) {
    return each_half([&](uint64_t x, uint64_t y) { return combined_floats(in, half, x, y); }, a, b);
  }
  if (is_float(in.type)) return combined_floats(in, in.type, a, b);
  if (in.operation == Operation::kMultiply) return integer_product(in, a, b);
  return low_bits(in.type,
                  is_signed(in.type)
                      ? combined_integers(in, signed_bits(in.type, a), signed_bits(in.type, b))
                      : combined_integers(in, low_bits(in.type, a), low_bits(in.type, b)));
}

const ThreadInstruction* find_arithmetic(std::string_view name) {
  return find_in(kInstructions, name);
}

}  // namespace subbyte::interpreter
