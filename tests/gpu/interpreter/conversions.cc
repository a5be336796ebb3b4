// cvt: conversions between types of numbers.
#include <algorithm>
#include <cmath>
#include <limits>

#include "machine.h"
#include "report.h"

namespace subbyte::interpreter {
namespace {

double to_integral(Rounding rounding, double value) {
  switch (rounding) {
    case Rounding::kZero:
      return std::trunc(value);
    case Rounding::kDown:
      return std::floor(value);
    case Rounding::kUp:
      return std::ceil(value);
    default:
      return std::nearbyint(value);
  }
}

/// The smallest and the largest number of a type of integers.
int64_t lowest(Type type) {
  return is_signed(type) ? std::numeric_limits<int64_t>::min() >> (64 - 8 * width(type)) : 0;
}
uint64_t highest(Type type) {
  return std::numeric_limits<uint64_t>::max() >> (64 - 8 * width(type) + (is_signed(type) ? 1 : 0));
}

/// PTX ISA 9.0, cvt: what is out of range becomes the nearest integer, NaN becomes 0.
uint64_t float_to_integer(const Instruction& in, double value) {
  const double integral = to_integral(in.rounding, value);
  if (std::isnan(integral)) return 0;
  if (integral <= static_cast<double>(lowest(in.type))) {
    return low_bits(in.type, static_cast<uint64_t>(lowest(in.type)));
  }
  if (integral >= static_cast<double>(highest(in.type))) return highest(in.type);
  return low_bits(in.type, is_signed(in.type)
                               ? static_cast<uint64_t>(static_cast<int64_t>(integral))
                               : static_cast<uint64_t>(integral));
}

uint64_t float_to_float(const Instruction& in, double value) {
  if (in.to_integral) {
    value = to_integral(in.rounding, value);
  } else if (in.rounding != Rounding::kNearest && width(in.type) < width(in.type2)) {
    stop("no such rounding is known");
  }
  if (in.saturates && in.type == Type::kF32) {
    value = std::isnan(value) ? 0 : std::min(1.0, std::max(0.0, value));
  }
  return rounded_bits(in.type, value);
}

uint64_t integer_to_float(const Instruction& in, uint64_t bits) {
  if (in.type == Type::kF32) {
    return bits_of(is_signed(in.type2) ? static_cast<float>(signed_bits(in.type2, bits))
                                       : static_cast<float>(low_bits(in.type2, bits)));
  }
  return rounded_bits(in.type, is_signed(in.type2)
                                   ? static_cast<double>(signed_bits(in.type2, bits))
                                   : static_cast<double>(low_bits(in.type2, bits)));
}

uint64_t integer_to_integer(const Instruction& in, uint64_t bits) {
  if (!is_signed(in.type2)) {
    const uint64_t value = low_bits(in.type2, bits);
    return in.saturates ? std::min(value, highest(in.type)) : low_bits(in.type, value);
  }
  int64_t value = signed_bits(in.type2, bits);
  if (in.saturates) {
    value = std::max(value, lowest(in.type));
    if (value > 0) return std::min(static_cast<uint64_t>(value), highest(in.type));
  }
  return low_bits(in.type, static_cast<uint64_t>(value));
}

uint64_t converted_number(const Instruction& in, uint64_t bits) {
  if (in.type == Type::kTf32) {
    return (bits + (in.rounding == Rounding::kAway ? 0x1000 : 0)) & 0xffffe000;
  }
  if (is_float(in.type2)) {
    const double value = number_of(in.type2, bits);
    return is_float(in.type) ? float_to_float(in, value) : float_to_integer(in, value);
  }
  return is_float(in.type) ? integer_to_float(in, bits) : integer_to_integer(in, bits);
}

/// Two numbers in one register: of two registers, the first of which is the upper half, or of one.
uint64_t converted_pair(const Thread& thread, const Instruction& in) {
  const Type to = half_of(in.type);
  const Type from = half_of(in.type2);
  uint64_t upper = value_of(thread, in.operands[1]);
  uint64_t lower = 0;
  Type type = in.type2;
  if (from == Type::kNone) {
    lower = value_of(thread, in.operands[2]);
  } else {
    type = from;
    lower = low_bits(from, upper);
    upper = low_bits(from, upper >> (8 * width(from)));
  }
  return rounded_bits(to, number_of(type, lower)) | rounded_bits(to, number_of(type, upper))
                                                        << (8 * width(to));
}

void convert(Thread& thread, const Instruction& in) {
  uint64_t result;
  if (half_of(in.type) != Type::kNone) {
    result = converted_pair(thread, in);
  } else {
    result = converted_number(in, value_of(thread, in.operands[1]));
    // A register that is wider than a signed number holds its sign, too.
    if (is_signed(in.type)) result = static_cast<uint64_t>(signed_bits(in.type, result));
    if (in.type == Type::kS32) result = low_bits(in.type, result);
  }
  set(thread, in.operands[0], result);
}

constexpr ThreadInstruction kInstructions[] = {{"cvt", convert}};

}  // namespace

const ThreadInstruction* find_conversion(std::string_view name) {
  return find_in(kInstructions, name);
}

}  // namespace subbyte::interpreter
