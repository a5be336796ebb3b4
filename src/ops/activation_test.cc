#include "ops/activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace subbyte {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

float silu(float gate, float up) {
  std::vector<float> value = {gate};
  silu_gate(value, std::vector<float>{up});
  return value[0];
}

float swiglu(float gate, float up, float alpha = 1.702f, float limit = 7) {
  std::vector<float> out = {-1};
  clamped_swiglu(out, std::vector<float>{gate, up}, alpha, limit);
  return out[0];
}

TEST(SiluGate, is_the_formula) {
  for (double x = -90; x <= 90; x += 0.37) {
    const auto gate = static_cast<float>(x);
    const double expected = gate * sigmoid(gate) * 1.5;
    // Below -88 exp overflows, and 1e-36 becomes 0.
    EXPECT_NEAR(silu(gate, 1.5f), expected, std::abs(expected) * 1e-6 + 1e-36) << x;
  }
  EXPECT_EQ(silu(0, 3), 0);
}

TEST(SiluGate, has_its_limits) {
  EXPECT_EQ(silu(1e30f, 1), 1e30f);
  EXPECT_EQ(silu(-1e30f, 1), 0);
  EXPECT_EQ(silu(-200, 5), 0);
}

TEST(SiluGate, nan_stays_nan_and_alone) {
  std::vector<float> gate = {1, kNan, 1, 1};
  silu_gate(gate, std::vector<float>{1, 1, kNan, 1});
  EXPECT_FALSE(std::isnan(gate[0]));
  EXPECT_TRUE(std::isnan(gate[1]));
  EXPECT_TRUE(std::isnan(gate[2]));
  EXPECT_FALSE(std::isnan(gate[3]));
}

TEST(ClampedSwiglu, takes_even_elements_as_gate) {
  const std::vector<float> gate_up = {1, 10, 2, 20, -3, -0.5f};
  std::vector<float> out(3);
  clamped_swiglu(out, gate_up, 1.702f, 100);
  EXPECT_NEAR(out[0], 1 * sigmoid(1.702) * 11, 1e-5);
  EXPECT_NEAR(out[1], 2 * sigmoid(3.404) * 21, 1e-4);
  EXPECT_NEAR(out[2], -3 * sigmoid(-5.106) * 0.5, 1e-7);
}

TEST(ClampedSwiglu, clamps_the_gate_above_and_up_on_both_sides) {
  const double at_limit = 7 * sigmoid(1.702 * 7);
  EXPECT_NEAR(swiglu(8, 1), at_limit * 2, 1e-5);
  EXPECT_EQ(swiglu(8, 1), swiglu(7, 1));
  EXPECT_EQ(swiglu(1e30f, 1), swiglu(7, 1));
  EXPECT_NE(swiglu(-8, 1), swiglu(-7, 1));  // not below
  EXPECT_NEAR(swiglu(-8, 1), -8 * sigmoid(-1.702 * 8) * 2, 1e-9);
  EXPECT_EQ(swiglu(1, 9), swiglu(1, 7));
  EXPECT_EQ(swiglu(1, -9), swiglu(1, -7));
  EXPECT_NEAR(swiglu(1, -9), sigmoid(1.702) * -6, 1e-6);
  EXPECT_EQ(swiglu(3, 2, 1, 0.5f), swiglu(0.5f, 0.5f, 1, 0.5f));
}

TEST(ClampedSwiglu, up_of_minus_one_gives_zero) {
  EXPECT_EQ(swiglu(3, -1), 0);
}

TEST(ClampedSwiglu, nan_stays_nan_and_alone) {
  // A clamp written the other way round would turn NaN into the limit.
  EXPECT_TRUE(std::isnan(swiglu(kNan, 1)));
  EXPECT_TRUE(std::isnan(swiglu(1, kNan)));
  std::vector<float> out(2);
  clamped_swiglu(out, std::vector<float>{kNan, 0, 1, 0}, 1.702f, 7);
  EXPECT_TRUE(std::isnan(out[0]));
  EXPECT_NEAR(out[1], sigmoid(1.702), 1e-6);
}

}  // namespace
}  // namespace subbyte
