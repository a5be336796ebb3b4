#include "base/float16.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace subbyte {
namespace {

/// A 16-bit floating-point type, by its numbers.
struct Type {
  int mantissa_bits;
  int bias;
};
constexpr Type kHalf = {10, 15};
constexpr Type kBrain = {7, 127};

/// Value of a code by the definition of IEEE 754.
double value_of(Type type, uint32_t code) {
  const uint32_t magnitude = code & 0x7FFF;
  const int field = static_cast<int>(magnitude >> type.mantissa_bits);
  const int mantissa = static_cast<int>(magnitude) & ((1 << type.mantissa_bits) - 1);
  double value = 0;
  if (field == 2 * type.bias + 1) {
    value = mantissa == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  } else if (field == 0) {
    value = std::ldexp(mantissa, 1 - type.bias - type.mantissa_bits);
  } else {
    value =
        std::ldexp(mantissa + (1 << type.mantissa_bits), field - type.bias - type.mantissa_bits);
  }
  return (code & 0x8000) != 0 ? -value : value;
}

/// `value` rounded to the nearest number of the type, ties to even, by scaling to an integer in
/// double precision, which is exact.
double rounded_to(Type type, float value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double magnitude = std::fabs(static_cast<double>(value));
  const int exponent = std::max(std::ilogb(magnitude), 1 - type.bias);
  const double step = std::ldexp(1, exponent - type.mantissa_bits);
  const double rounded = std::nearbyint(magnitude / step) * step;
  const double limit = std::ldexp(1, type.bias + 1);
  return std::copysign(rounded >= limit ? HUGE_VAL : rounded, value);
}

/// Low, middle and high mantissas, and those around every rounding boundary of both types.
std::vector<uint32_t> mantissas() {
  std::vector<uint32_t> result;
  for (const int dropped : {13, 16}) {
    const uint32_t step = 1u << dropped;
    for (uint32_t kept :
         {0u, 1u, 2u, 3u, 0x2Au, 0x55u, (0x800000u >> dropped) - 2, (0x800000u >> dropped) - 1}) {
      for (uint32_t rest : {0u, 1u, step / 2 - 1, step / 2, step / 2 + 1, step - 1}) {
        result.push_back(kept * step + rest);
      }
    }
  }
  for (int bit = 0; bit < 23; ++bit) {  // ties of subnormals lie at other bits
    for (uint32_t upper : {0u, 0x7FFFFFu, 0x2AAAAAu}) {
      const uint32_t kept = upper & ~((2u << bit) - 1);
      result.push_back(kept | (1u << bit));
      result.push_back((kept | (1u << bit)) + 1);
      result.push_back((kept | (1u << bit)) - 1);
    }
  }
  return result;
}

TEST(Float16, all_codes_convert_to_float_exactly) {
  for (uint32_t code = 0; code < 65536; ++code) {
    const float value = to_float(Float16{static_cast<uint16_t>(code)});
    const double expected = value_of(kHalf, code);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << code;
    } else {
      ASSERT_EQ(value, expected) << code;
      ASSERT_EQ(std::signbit(value), std::signbit(expected)) << code;
    }
  }
}

TEST(BFloat16, all_codes_convert_to_float_exactly) {
  for (uint32_t code = 0; code < 65536; ++code) {
    const float value = to_float(BFloat16{static_cast<uint16_t>(code)});
    const double expected = value_of(kBrain, code);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << code;
    } else {
      ASSERT_EQ(value, expected) << code;
      ASSERT_EQ(std::signbit(value), std::signbit(expected)) << code;
    }
  }
}

TEST(Float16, all_codes_survive_the_way_through_float) {
  for (uint32_t code = 0; code < 65536; ++code) {
    const bool nan = (code & 0x7FFF) > 0x7C00;
    const uint32_t quiet = nan ? 0x0200 : 0;  // a signalling NaN becomes quiet and keeps the rest
    const Float16 half = {static_cast<uint16_t>(code)};
    ASSERT_EQ(to_float16(to_float(half)).bits, code | quiet) << code;
  }
}

TEST(BFloat16, all_codes_survive_the_way_through_float) {
  for (uint32_t code = 0; code < 65536; ++code) {
    const bool nan = (code & 0x7FFF) > 0x7F80;
    const BFloat16 brain = {static_cast<uint16_t>(code)};
    ASSERT_EQ(to_bfloat16(to_float(brain)).bits, code | (nan ? 0x0040 : 0)) << code;
  }
}

TEST(Float16, rounds_floats_of_every_exponent_to_nearest_even) {
  for (uint32_t upper = 0; upper < 512; ++upper) {  // sign and exponent
    if ((upper & 0xFF) == 0xFF) continue;
    for (const uint32_t mantissa : mantissas()) {
      const float value = std::bit_cast<float>((upper << 23) | (mantissa & 0x7FFFFF));
      const double expected = rounded_to(kHalf, value);
      const uint32_t code = to_float16(value).bits;
      ASSERT_EQ(value_of(kHalf, code), expected) << value;
      ASSERT_EQ(code >> 15, upper >> 8) << value;
    }
  }
}

TEST(BFloat16, rounds_floats_of_every_exponent_to_nearest_even) {
  for (uint32_t upper = 0; upper < 512; ++upper) {
    if ((upper & 0xFF) == 0xFF) continue;
    for (const uint32_t mantissa : mantissas()) {
      const float value = std::bit_cast<float>((upper << 23) | (mantissa & 0x7FFFFF));
      const double expected = rounded_to(kBrain, value);
      const uint32_t code = to_bfloat16(value).bits;
      ASSERT_EQ(value_of(kBrain, code), expected) << value;
      ASSERT_EQ(code >> 15, upper >> 8) << value;
    }
  }
}

TEST(Float16, known_codes) {
  EXPECT_EQ(to_float16(1.0f).bits, 0x3C00);
  EXPECT_EQ(to_float16(-2.0f).bits, 0xC000);
  EXPECT_EQ(to_float16(65504.0f).bits, 0x7BFF);
  EXPECT_EQ(to_float16(65519.99f).bits, 0x7BFF);
  EXPECT_EQ(to_float16(65520.0f).bits, 0x7C00);
  EXPECT_EQ(to_float16(-1e30f).bits, 0xFC00);
  EXPECT_EQ(to_float16(0x1p-24f).bits, 0x0001);
  EXPECT_EQ(to_float16(0x1p-25f).bits, 0x0000);  // tie with zero
  EXPECT_EQ(to_float16(0x1.000002p-25f).bits, 0x0001);
  EXPECT_EQ(to_float16(0x1.8p-24f).bits, 0x0002);    // tie between 1 and 2 steps
  EXPECT_EQ(to_float16(0x1.ffep-15f).bits, 0x0400);  // from the subnormals into the normals
  EXPECT_EQ(to_float16(-0.0f).bits, 0x8000);
  EXPECT_EQ(to_float16(1e-45f).bits, 0x0000);
}

TEST(BFloat16, known_codes) {
  EXPECT_EQ(to_bfloat16(1.0f).bits, 0x3F80);
  EXPECT_EQ(to_bfloat16(3.3895314e38f).bits, 0x7F7F);
  EXPECT_EQ(to_bfloat16(std::numeric_limits<float>::max()).bits, 0x7F80);
  EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0x3F808000u)).bits, 0x3F80);  // tie, even below
  EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0x3F818000u)).bits, 0x3F82);  // tie, even above
  EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0x00008001u)).bits, 0x0001);  // subnormal
}

TEST(Float16, nan_stays_nan) {
  // A payload in the low bits only must not turn into infinity.
  for (const uint32_t bits : {0x7F800001u, 0xFF800001u, 0x7FC00000u, 0x7FFFFFFFu, 0xFFFFFFFFu}) {
    const float nan = std::bit_cast<float>(bits);
    EXPECT_TRUE(std::isnan(value_of(kHalf, to_float16(nan).bits))) << bits;
    EXPECT_TRUE(std::isnan(value_of(kBrain, to_bfloat16(nan).bits))) << bits;
    EXPECT_EQ(to_float16(nan).bits >> 15, bits >> 31);
    EXPECT_EQ(to_bfloat16(nan).bits >> 15, bits >> 31);
  }
}

}  // namespace
}  // namespace subbyte
