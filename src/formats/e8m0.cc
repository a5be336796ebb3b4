// e8m0: the power-of-two scale of the OCP MX formats, code c = 2^(c - 127).
//
//   0    2^-127, not zero. As binary32 it is subnormal (0x00400000): a kernel that builds it by
//        shifting the code into the exponent field, or runs with FTZ/DAZ, gets 0.
//   254  2^127
//   255  NaN: the whole block is NaN
//
// No sign, no zero, no infinity: zero and negative numbers encode as 2^-127, the nearest.
#include <bit>

#include "formats/format_objects.h"
#include "formats/minifloat.h"

namespace subbyte::formats {
namespace {

constexpr uint32_t kNanCode = 255;
constexpr uint32_t kMaxCode = 254;
constexpr int kBias = 127;

constexpr double decode_e8m0(uint32_t code) {
  if (code == kNanCode) return std::numeric_limits<double>::quiet_NaN();
  return power_of_two(static_cast<int>(code) - kBias);
}

constexpr uint32_t encode_e8m0(double value, Rounding rounding) {
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const uint64_t magnitude = bits & ~(uint64_t{1} << 63);
  if (magnitude > uint64_t{0x7FF} << 52) return kNanCode;
  if (magnitude != bits) return 0;
  // A subnormal double has field 0 and ends up at code 0 with everything else below 2^-127.
  const int floor_code = static_cast<int>(magnitude >> 52) - 1023 + kBias;
  if (floor_code < 0) return 0;
  if (floor_code >= static_cast<int>(kMaxCode)) return kMaxCode;
  // Between 2^n and 2^(n+1) the middle is 1.5 * 2^n: the first bit of the fraction.
  const uint64_t fraction = magnitude & ((uint64_t{1} << 52) - 1);
  const uint32_t code = static_cast<uint32_t>(floor_code);
  return code + (rounds_up(code, fraction, 52, rounding) ? 1 : 0);
}

}  // namespace

constinit const FormatInfo e8m0 = {
    .id = Format::kE8M0,
    .name = "e8m0",
    .bits = 8,
    .specials = Specials::kNan,
    .max = decode_e8m0(kMaxCode),
    .min = decode_e8m0(0),
    .decode = decode_e8m0,
    .encode = encode_e8m0,
};

}  // namespace subbyte::formats
