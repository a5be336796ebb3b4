#include "formats/mx_scale.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace subbyte {
namespace {

/// Exponent (unbiased) that the rule gives.
int exponent(double amax, Format element, ScaleRule rule) {
  return static_cast<int>(shared_exponent(amax, info(element), rule)) - 127;
}

TEST(MxScale, rules_for_e2m1) {
  struct Case {
    double amax;
    int ocp_floor, ceil, bump175;
  };
  const std::vector<Case> cases = {
      {4, 0, 0, 0},      {6, 0, 0, 0},       {6.0001, 0, 1, 0},  {6.9999, 0, 1, 0}, {7, 0, 1, 1},
      {7.99, 0, 1, 1},   {8, 1, 1, 1},       {12, 1, 1, 1},      {12.5, 1, 2, 1},   {1, -2, -2, -2},
      {1.5, -2, -2, -2}, {1.75, -2, -1, -1}, {0.75, -3, -3, -3}, {3, -1, -1, -1},   {3.5, -1, 0, 0},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(exponent(c.amax, Format::kE2M1, ScaleRule::kFloor), c.ocp_floor) << c.amax;
    EXPECT_EQ(exponent(c.amax, Format::kE2M1, ScaleRule::kCeil), c.ceil) << c.amax;
    EXPECT_EQ(exponent(c.amax, Format::kE2M1, ScaleRule::kBump175), c.bump175) << c.amax;
  }
}

TEST(MxScale, rules_for_e4m3_and_e5m2) {
  EXPECT_EQ(exponent(448, Format::kE4M3, ScaleRule::kFloor), 0);
  EXPECT_EQ(exponent(448, Format::kE4M3, ScaleRule::kCeil), 0);
  EXPECT_EQ(exponent(448, Format::kE4M3, ScaleRule::kBump175), 1);
  EXPECT_EQ(exponent(449, Format::kE4M3, ScaleRule::kCeil), 1);
  EXPECT_EQ(exponent(449, Format::kE4M3, ScaleRule::kFloor), 0);
  EXPECT_EQ(exponent(256, Format::kE4M3, ScaleRule::kFloor), 0);
  EXPECT_EQ(exponent(255, Format::kE4M3, ScaleRule::kFloor), -1);
  EXPECT_EQ(exponent(57344, Format::kE5M2, ScaleRule::kCeil), 0);
  EXPECT_EQ(exponent(57345, Format::kE5M2, ScaleRule::kCeil), 1);
  EXPECT_EQ(exponent(32768, Format::kE5M2, ScaleRule::kFloor), 0);
  EXPECT_EQ(exponent(32767, Format::kE5M2, ScaleRule::kFloor), -1);
}

TEST(MxScale, ceil_is_exact_at_every_power_of_two) {
  // ceil(log2(amax / 6)) in floating point may move an exact power by one.
  for (int e = -120; e <= 120; ++e) {
    const double amax = std::ldexp(6, e);
    EXPECT_EQ(exponent(amax, Format::kE2M1, ScaleRule::kCeil), e);
    EXPECT_EQ(exponent(std::nextafter(amax, 0), Format::kE2M1, ScaleRule::kCeil), e);
    EXPECT_EQ(exponent(std::nextafter(amax, 2 * amax), Format::kE2M1, ScaleRule::kCeil), e + 1);
  }
}

TEST(MxScale, ceil_never_clips_and_is_the_smallest_such_scale) {
  for (double amax = 1e-30; amax < 1e30; amax *= 1.0137) {
    const double scale = std::ldexp(1, exponent(amax, Format::kE4M3, ScaleRule::kCeil));
    EXPECT_LE(amax, 448 * scale);
    EXPECT_GT(amax, 448 * scale / 2);
  }
}

TEST(MxScale, edges_of_the_range) {
  const FormatInfo& e2m1 = info(Format::kE2M1);
  for (const ScaleRule rule : {ScaleRule::kFloor, ScaleRule::kCeil, ScaleRule::kBump175}) {
    EXPECT_EQ(shared_exponent(0, e2m1, rule), 0u);
    EXPECT_EQ(shared_exponent(5e-324, e2m1, rule), 0u);
    EXPECT_EQ(shared_exponent(std::ldexp(1, -149), e2m1, rule), 0u);
    EXPECT_EQ(shared_exponent(std::ldexp(1, -125), e2m1, rule), 0u);
    EXPECT_EQ(shared_exponent(std::ldexp(1, -124), e2m1, rule), 1u);
    EXPECT_EQ(shared_exponent(std::ldexp(1, 127), e2m1, rule), 252u);
    EXPECT_EQ(shared_exponent(1e300, e2m1, rule), 254u);
    EXPECT_EQ(shared_exponent(std::numeric_limits<double>::infinity(), e2m1, rule), 254u);
    EXPECT_EQ(shared_exponent(std::nan(""), e2m1, rule), 255u);
  }
  EXPECT_EQ(shared_exponent(std::numeric_limits<float>::max(), e2m1, ScaleRule::kFloor), 252u);
  EXPECT_EQ(shared_exponent(std::numeric_limits<float>::max(), e2m1, ScaleRule::kCeil), 253u);
}

}  // namespace
}  // namespace subbyte
