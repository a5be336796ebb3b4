#include <bit>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>
#include "base/float16.h"
#include "base/random.h"
#include "formats/format.h"

namespace subbyte {
namespace {

/// The value that IEEE 754 gives to a 16-bit code.
double ieee_value(uint32_t code, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int field = static_cast<int>(code >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = static_cast<int>(code) & ((1 << mantissa_bits) - 1);
  double value = 0;
  if (field == 2 * bias + 1) {
    value = mantissa == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  } else if (field == 0) {
    value = std::ldexp(mantissa, 1 - bias - mantissa_bits);
  } else {
    value = std::ldexp(mantissa + (1 << mantissa_bits), field - bias - mantissa_bits);
  }
  return (code & 0x8000) != 0 ? -value : value;
}

void expect_ieee(Format format, int exponent_bits, uint32_t quiet_nan) {
  for (uint32_t code = 0; code < 65536; ++code) {
    const double expected = ieee_value(code, exponent_bits);
    const double value = info(format).decode(code);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << code;
      ASSERT_EQ(info(format).encode(value, Rounding::kNearestEven), quiet_nan);
    } else {
      ASSERT_EQ(value, expected) << code;
      ASSERT_EQ(std::signbit(value), std::signbit(expected)) << code;
      ASSERT_EQ(info(format).encode(expected, Rounding::kNearestEven), code);
    }
  }
}

TEST(DenseFloats, f16_follows_ieee_754_in_all_codes) {
  expect_ieee(Format::kF16, 5, 0x7E00);
}

TEST(DenseFloats, bf16_is_the_upper_half_of_binary32_in_all_codes) {
  expect_ieee(Format::kBF16, 8, 0x7FC0);
}

TEST(DenseFloats, f32_agrees_with_the_machine) {
  const FormatInfo& f32 = info(Format::kF32);
  Random random(1);
  for (int i = 0; i < 2'000'000; ++i) {
    // Half of the codes get a small exponent field, so that subnormals are well covered.
    uint32_t code = static_cast<uint32_t>(random.next());
    if (i % 2 == 0) code &= 0x81FFFFFFu;
    const float value = std::bit_cast<float>(code);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(f32.decode(code)));
      continue;
    }
    ASSERT_EQ(std::bit_cast<uint64_t>(f32.decode(code)),
              std::bit_cast<uint64_t>(static_cast<double>(value)));
    ASSERT_EQ(f32.encode(value, Rounding::kNearestEven), code);
  }
}

TEST(DenseFloats, f32_rounds_doubles_as_the_machine_does) {
  const FormatInfo& f32 = info(Format::kF32);
  Random random(2);
  for (int i = 0; i < 1'000'000; ++i) {
    const int exponent = static_cast<int>(random.below(340)) - 170;
    double value = std::ldexp(2 * random.uniform() - 1, exponent);
    if (i % 4 == 0) {  // the middle of two neighbours, and the doubles next to it
      const float lower = static_cast<float>(value);
      if (!std::isfinite(lower)) continue;
      const float upper = std::nextafter(lower, std::numeric_limits<float>::max());
      value = (static_cast<double>(lower) + upper) / 2;
      if (i % 3 == 1) value = std::nextafter(value, 0);
      if (i % 3 == 2) value = std::nextafter(value, 2 * value);
    }
    ASSERT_EQ(f32.encode(value, Rounding::kNearestEven),
              std::bit_cast<uint32_t>(static_cast<float>(value)))
        << value;
  }
}

TEST(DenseFloats, f32_limits) {
  const FormatInfo& f32 = info(Format::kF32);
  const double max = std::numeric_limits<float>::max();
  const double half_step = std::ldexp(1, 103);
  EXPECT_EQ(f32.max, max);
  EXPECT_EQ(f32.min, -max);
  EXPECT_EQ(f32.encode(std::nextafter(max + half_step, 0), Rounding::kNearestEven), 0x7F7FFFFFu);
  EXPECT_EQ(f32.encode(max + half_step, Rounding::kNearestEven), 0x7F800000u);
  EXPECT_EQ(f32.encode(-1e300, Rounding::kNearestEven), 0xFF800000u);
  EXPECT_EQ(f32.encode(-1e300, Rounding::kTowardZero), 0xFF7FFFFFu);
  EXPECT_EQ(f32.encode(std::ldexp(1, -150), Rounding::kNearestEven), 0u);
  EXPECT_EQ(f32.encode(std::ldexp(1.5, -150), Rounding::kNearestEven), 1u);
  EXPECT_EQ(f32.encode(std::ldexp(1.5, -149), Rounding::kNearestEven), 2u);
  EXPECT_EQ(f32.encode(std::ldexp(1.5, -149), Rounding::kNearestLowerIndex), 1u);
  EXPECT_EQ(f32.encode(5e-324, Rounding::kNearestEven), 0u);
  EXPECT_EQ(f32.encode(-5e-324, Rounding::kNearestEven), 0x80000000u);
  EXPECT_EQ(f32.encode(-5e-324, Rounding::kNearestLowerIndex), 0u);
  EXPECT_EQ(f32.encode(std::nan(""), Rounding::kNearestEven), 0x7FC00000u);
}

TEST(DenseFloats, codecs_agree_with_the_conversions_of_base) {
  Random random(3);
  for (int i = 0; i < 1'000'000; ++i) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random.next()));
    if (std::isnan(value)) continue;
    ASSERT_EQ(info(Format::kF16).encode(value, Rounding::kNearestEven), to_float16(value).bits);
    ASSERT_EQ(info(Format::kBF16).encode(value, Rounding::kNearestEven), to_bfloat16(value).bits);
  }
}

}  // namespace
}  // namespace subbyte
