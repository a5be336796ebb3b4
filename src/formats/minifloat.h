#pragma once
// Decoding and encoding for every format that is built like IEEE 754, from 4 to 32 bits:
//
//   sign (0 or 1 bit) | exponent field e | mantissa field m
//
//   e > 0:  2^(e - bias) * (1 + m / 2^mantissa_bits)
//   e = 0:  2^(1 - bias) * (m / 2^mantissa_bits)          zero and subnormals
//
// Specials::kNanInfinity gives the largest exponent field to infinity (m = 0) and NaN;
// Specials::kNan gives up one code only, all ones below the sign; Specials::kNone nothing.
//
// Everything here is integer arithmetic on the bits of a double, except one product of two normal
// numbers whose result is exact and normal. So neither the rounding mode nor FTZ/DAZ of the
// calling thread changes a result, though subnormals of binary32 are among the values.

#include <bit>
#include <cstdint>
#include <limits>
#include <string_view>

#include "formats/format.h"

namespace subbyte::formats {

struct MinifloatSpec {
  bool sign;
  int exponent_bits;
  int mantissa_bits;  // >= 1: without a mantissa the parity of a code is that of the exponent
  int bias;
  Specials specials;
};

/// Codes without the sign bit.
constexpr uint32_t magnitude_mask(const MinifloatSpec& spec) {
  return (uint32_t{1} << (spec.exponent_bits + spec.mantissa_bits)) - 1;
}

constexpr uint32_t sign_mask(const MinifloatSpec& spec) {
  return spec.sign ? magnitude_mask(spec) + 1 : 0;
}

/// Code of the largest finite value. The code after it, if there is one, is infinity or NaN.
constexpr uint32_t max_code(const MinifloatSpec& spec) {
  switch (spec.specials) {
    case Specials::kNone:
      return magnitude_mask(spec);
    case Specials::kNan:
      return magnitude_mask(spec) - 1;
    case Specials::kNanInfinity:
      break;
  }
  return magnitude_mask(spec) - (uint32_t{1} << spec.mantissa_bits);
}

/// The quiet NaN with a clear sign bit, or the code of zero where there is no NaN.
constexpr uint32_t nan_code(const MinifloatSpec& spec) {
  switch (spec.specials) {
    case Specials::kNone:
      return 0;
    case Specials::kNan:
      return magnitude_mask(spec);
    case Specials::kNanInfinity:
      break;
  }
  return max_code(spec) + 1 + (uint32_t{1} << (spec.mantissa_bits - 1));
}

/// 2^exponent, -1022 <= exponent <= 1023.
constexpr double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

constexpr double decode_minifloat(const MinifloatSpec& spec, uint32_t code) {
  const uint32_t magnitude = code & magnitude_mask(spec);
  double value = 0;
  if (magnitude > max_code(spec)) {
    const bool infinite =
        spec.specials == Specials::kNanInfinity && magnitude == max_code(spec) + 1;
    value = infinite ? std::numeric_limits<double>::infinity()
                     : std::numeric_limits<double>::quiet_NaN();
  } else {
    const uint32_t implicit_one = uint32_t{1} << spec.mantissa_bits;
    const int field = static_cast<int>(magnitude >> spec.mantissa_bits);
    const uint32_t mantissa = magnitude & (implicit_one - 1);
    const int exponent = (field == 0 ? 1 : field) - spec.bias - spec.mantissa_bits;
    value = (field == 0 ? mantissa : mantissa | implicit_one) * power_of_two(exponent);
  }
  return (code & sign_mask(spec)) != 0 ? -value : value;
}

/// Says whether a number `rest` / 2^shift of the way from an integer to the next one goes up. 1 <=
/// shift <= 63.
constexpr bool rounds_up(uint64_t whole, uint64_t rest, int shift, Rounding rounding) {
  const uint64_t half = uint64_t{1} << (shift - 1);
  switch (rounding) {
    case Rounding::kNearestEven:
      return rest > half || (rest == half && (whole & 1) != 0);
    case Rounding::kNearestLowerIndex:
      return rest > half;
    case Rounding::kTowardZero:
      break;
  }
  return false;
}

/// Code of the magnitude significand * 2^(exponent - 52), as if the exponent field had no end.
/// A carry out of the mantissa moves to the next exponent by itself.
constexpr uint64_t round_magnitude(const MinifloatSpec& spec, uint64_t significand, int exponent,
                                   Rounding rounding) {
  const int min_exponent = 1 - spec.bias;
  const int step = exponent > min_exponent ? exponent - min_exponent : 0;
  int shift = 52 - spec.mantissa_bits + (min_exponent + step - exponent);
  if (shift > 63) shift = 63;  // far below half of the smallest subnormal either way
  const uint64_t whole = significand >> shift;
  const uint64_t rest = significand & ((uint64_t{1} << shift) - 1);
  // Parity of `whole` is parity of the code, since mantissa_bits >= 1.
  const uint64_t rounded = whole + (rounds_up(whole, rest, shift, rounding) ? 1 : 0);
  return rounded + (static_cast<uint64_t>(step) << spec.mantissa_bits);
}

constexpr uint32_t encode_minifloat(const MinifloatSpec& spec, double value, Rounding rounding) {
  constexpr uint64_t kInfinity = uint64_t{0x7FF} << 52;
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const uint64_t magnitude = bits & ~(uint64_t{1} << 63);
  const bool negative = magnitude != bits;
  if (magnitude > kInfinity) return nan_code(spec);
  if (negative && !spec.sign) return 0;
  const uint32_t sign = negative ? sign_mask(spec) : 0;
  const bool has_infinity = spec.specials == Specials::kNanInfinity;
  if (magnitude == kInfinity) return sign | (max_code(spec) + (has_infinity ? 1 : 0));

  const int field = static_cast<int>(magnitude >> 52);
  const uint64_t fraction = magnitude & ((uint64_t{1} << 52) - 1);
  const uint64_t significand = field == 0 ? fraction : fraction | (uint64_t{1} << 52);
  uint64_t code = round_magnitude(spec, significand, (field == 0 ? 1 : field) - 1023, rounding);
  if (code > max_code(spec)) {
    const bool overflow = has_infinity && rounding != Rounding::kTowardZero;
    code = max_code(spec) + (overflow ? 1 : 0);
  }
  // +0 and -0 are equally near to a negative number that underflows; +0 has the lower index.
  if (code == 0 && rounding == Rounding::kNearestLowerIndex) return 0;
  return sign | static_cast<uint32_t>(code);
}

template <MinifloatSpec kSpec>
constexpr FormatInfo minifloat_info(Format id, std::string_view name) {
  const double max = decode_minifloat(kSpec, max_code(kSpec));
  return {
      .id = id,
      .name = name,
      .bits = (kSpec.sign ? 1 : 0) + kSpec.exponent_bits + kSpec.mantissa_bits,
      .specials = kSpec.specials,
      .max = max,
      .min = kSpec.sign ? -max : 0,
      .decode = [](uint32_t code) { return decode_minifloat(kSpec, code); },
      .encode = [](double value,
                   Rounding rounding) { return encode_minifloat(kSpec, value, rounding); },
  };
}

}  // namespace subbyte::formats
