// Integers of 2 to 8 bits.
//
//   u4   value = code            0..15    AWQ, GPTQ: the zero point is stored beside the scale
//   i4   value = code - 8       -8..7     symmetric weights: no zero point stored
//
// iN is offset binary, not two's complement, because files are: compressed-tensors adds 2^(N-1)
// to a signed weight before it packs it, and symmetric GPTQ is uN with a zero point of 2^(N-1)
// everywhere. So the codes of iN and uN order alike, a symmetric matrix keeps its bytes, and a
// kernel for uN serves iN with a constant zero point. (The int8 of plain safetensors tensors is
// two's complement; it is a dtype of the file, not a weight format.)
#include <cmath>

#include "formats/format_objects.h"

namespace subbyte::formats {
namespace {

/// `value` is within the range of the format.
double round_integer(double value, Rounding rounding) {
  if (rounding == Rounding::kTowardZero) return std::trunc(value);
  // value - floor(value) may round to 0.5; floor(value) + 0.5 is exact in this range.
  const double lower = std::floor(value);
  const double middle = lower + 0.5;
  if (value != middle) return value < middle ? lower : lower + 1;
  if (rounding == Rounding::kNearestLowerIndex) return lower;
  // The offset is even, so an even code is an even value.
  return std::fmod(lower, 2) == 0 ? lower : lower + 1;
}

template <int kBits, int kOffset>
double decode_integer(uint32_t code) {
  return static_cast<double>(code) - kOffset;
}

template <int kBits, int kOffset>
uint32_t encode_integer(double value, Rounding rounding) {
  constexpr double kMin = -kOffset;
  constexpr double kMax = (1 << kBits) - 1 - kOffset;
  if (std::isnan(value)) return kOffset;
  if (value <= kMin) return 0;
  if (value >= kMax) return (1u << kBits) - 1;
  return static_cast<uint32_t>(static_cast<int>(round_integer(value, rounding)) + kOffset);
}

template <int kBits, int kOffset>
constexpr FormatInfo integer_info(Format id, std::string_view name) {
  return {
      .id = id,
      .name = name,
      .bits = kBits,
      .specials = Specials::kNone,
      .max = (1 << kBits) - 1 - kOffset,
      .min = -kOffset,
      .decode = decode_integer<kBits, kOffset>,
      .encode = encode_integer<kBits, kOffset>,
  };
}

template <int kBits>
constexpr FormatInfo unsigned_info(Format id, std::string_view name) {
  return integer_info<kBits, 0>(id, name);
}

template <int kBits>
constexpr FormatInfo offset_info(Format id, std::string_view name) {
  return integer_info<kBits, 1 << (kBits - 1)>(id, name);
}

}  // namespace

constinit const FormatInfo u2 = unsigned_info<2>(Format::kU2, "u2");
constinit const FormatInfo u3 = unsigned_info<3>(Format::kU3, "u3");
constinit const FormatInfo u4 = unsigned_info<4>(Format::kU4, "u4");
constinit const FormatInfo u5 = unsigned_info<5>(Format::kU5, "u5");
constinit const FormatInfo u6 = unsigned_info<6>(Format::kU6, "u6");
constinit const FormatInfo u7 = unsigned_info<7>(Format::kU7, "u7");
constinit const FormatInfo u8 = unsigned_info<8>(Format::kU8, "u8");

constinit const FormatInfo i2 = offset_info<2>(Format::kI2, "i2");
constinit const FormatInfo i3 = offset_info<3>(Format::kI3, "i3");
constinit const FormatInfo i4 = offset_info<4>(Format::kI4, "i4");
constinit const FormatInfo i5 = offset_info<5>(Format::kI5, "i5");
constinit const FormatInfo i6 = offset_info<6>(Format::kI6, "i6");
constinit const FormatInfo i7 = offset_info<7>(Format::kI7, "i7");
constinit const FormatInfo i8 = offset_info<8>(Format::kI8, "i8");

}  // namespace subbyte::formats
