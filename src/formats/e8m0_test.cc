#include <cmath>
#include <limits>

#include <gtest/gtest.h>
#include "formats/format.h"

namespace subbyte {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

uint32_t encode(double value, Rounding rounding = Rounding::kNearestEven) {
  return info(Format::kE8M0).encode(value, rounding);
}

TEST(E8m0, decodes_all_codes) {
  const FormatInfo& e8m0 = info(Format::kE8M0);
  for (uint32_t code = 0; code < 255; ++code) {
    EXPECT_EQ(e8m0.decode(code), std::ldexp(1, static_cast<int>(code) - 127)) << code;
  }
  EXPECT_TRUE(std::isnan(e8m0.decode(255)));
}

TEST(E8m0, known_codes) {
  const FormatInfo& e8m0 = info(Format::kE8M0);
  EXPECT_EQ(e8m0.decode(0), 0x1p-127);
  EXPECT_EQ(static_cast<float>(e8m0.decode(0)), 5.877471754e-39f);
  EXPECT_EQ(e8m0.decode(120), 0.0078125);
  EXPECT_EQ(e8m0.decode(127), 1);
  EXPECT_EQ(e8m0.decode(134), 128);
  EXPECT_EQ(e8m0.decode(254), 0x1p127);
}

TEST(E8m0, zero_and_negative_numbers_become_the_smallest_scale) {
  for (const double value : {0.0, -0.0, 5e-324, 0x1p-128, 0x1.fp-128, -1.0, -kInf}) {
    EXPECT_EQ(encode(value), 0u) << value;
  }
}

TEST(E8m0, saturates_below_the_nan_code) {
  for (const double value : {0x1p127, 0x1.8p127, 0x1p128, 1e300, kInf}) {
    EXPECT_EQ(encode(value), 254u) << value;
    EXPECT_EQ(encode(value, Rounding::kTowardZero), 254u) << value;
  }
  EXPECT_EQ(encode(std::nan("")), 255u);
  EXPECT_EQ(encode(-std::nan("")), 255u);
}

TEST(E8m0, ties_in_the_middle_of_two_powers) {
  EXPECT_EQ(encode(1.5), 128u);  // between 127 and 128
  EXPECT_EQ(encode(3.0), 128u);  // between 128 and 129
  EXPECT_EQ(encode(1.5, Rounding::kNearestLowerIndex), 127u);
  EXPECT_EQ(encode(3.0, Rounding::kNearestLowerIndex), 128u);
  EXPECT_EQ(encode(1.999, Rounding::kTowardZero), 127u);
}

}  // namespace
}  // namespace subbyte
