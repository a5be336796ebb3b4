#include "ops/rope.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "support/isa_test.h"

namespace subbyte {
namespace {

// As in gpt-oss.
constexpr int64_t kDim = 64;
constexpr double kTheta = 150'000;

/// Turns heads of `dim` elements, one after the other, to `position`.
void turn_heads(const Execution& execution, const Rope& rope, std::span<float> heads,
                int64_t position, int64_t dim, std::span<const float> weight = {}, float eps = 0) {
  std::vector<float> cos(rope.inv_freq().size()), sin(cos.size());
  rope.angles(cos, sin, position);
  for (std::size_t i = 0; i < heads.size(); i += dim) {
    execution.kernels().vectors->norm_rotate(&heads[i], &heads[i],
                                             weight.empty() ? nullptr : weight.data(), eps,
                                             cos.data(), sin.data(), dim);
  }
}

class TurnedHeads : public subbyte::testing::IsaTest {
 protected:
  void turn(const Rope& rope, std::span<float> heads, int64_t position, int64_t dim) {
    turn_heads(run_, rope, heads, position, dim);
  }
  Execution& run_ = execution(1);
};

double relative(double found, double expected) {
  return std::abs(found / expected - 1);
}

TEST(Rope, frequencies_are_powers_of_theta) {
  const Rope rope(128, 1e6);
  ASSERT_EQ(rope.inv_freq().size(), 64u);
  EXPECT_EQ(rope.inv_freq()[0], 1);
  for (int i = 0; i < 64; ++i) {
    EXPECT_LT(relative(rope.inv_freq()[i], std::exp(-std::log(1e6) * i / 64)), 1e-14);
  }
  EXPECT_EQ(rope.attention_factor(), 1);
}

TEST_P(TurnedHeads, turns_halves_together) {
  // One pair: (1, 0) at position 1 turns by 1 radian.
  const Rope rope(2, 10'000);
  std::vector<float> head = {1, 0};
  turn(rope, head, 1, 2);
  EXPECT_FLOAT_EQ(head[0], 0.540302306f);
  EXPECT_FLOAT_EQ(head[1], 0.841470985f);
  // Two pairs of theta 100: element 0 goes with 2 by 3 radians, 1 with 3 by 0.3.
  const Rope two(4, 100);
  std::vector<float> turned = {1, 2, 3, 4};
  turn(two, turned, 3, 4);
  EXPECT_NEAR(turned[0], 1 * std::cos(3.0) - 3 * std::sin(3.0), 1e-6);
  EXPECT_NEAR(turned[2], 3 * std::cos(3.0) + 1 * std::sin(3.0), 1e-6);
  EXPECT_NEAR(turned[1], 2 * std::cos(0.3) - 4 * std::sin(0.3), 1e-6);
  EXPECT_NEAR(turned[3], 4 * std::cos(0.3) + 2 * std::sin(0.3), 1e-6);
}

TEST_P(TurnedHeads, position_0_only_scales) {
  std::vector<float> head(kDim, 0.5f);
  turn(Rope(kDim, kTheta), head, 0, kDim);
  for (const float x : head) EXPECT_EQ(x, 0.5f);
  turn(Rope(rope_frequencies(kDim, kTheta), 1.34657), head, 0, kDim);
  for (const float x : head) EXPECT_NEAR(x, 0.5 * 1.34657, 5e-6);
}

TEST_P(TurnedHeads, turns_every_head_alike) {
  const Rope rope(rope_frequencies(8, 1e4), 1.34657);
  Random random(1);
  std::vector<float> heads(24);
  for (float& x : heads) x = static_cast<float>(random.normal());
  std::vector<float> alone(heads.begin() + 8, heads.begin() + 16);
  turn(rope, heads, 1234, 8);
  turn(rope, alone, 1234, 8);
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), heads.begin() + 8));
}

TEST_P(TurnedHeads, angles_stay_exact_far_out) {
  // Float32 angles would be off by 2e-3 radians here.
  const Rope rope(4, 1e6);
  std::vector<float> head = {1, 0, 0, 0};
  turn(rope, head, 131'071, 4);
  EXPECT_NEAR(head[0], std::cos(131'071.0), 1e-7);
  EXPECT_NEAR(head[2], std::sin(131'071.0), 1e-7);
}

TEST_P(TurnedHeads, products_depend_on_the_distance_alone) {
  const Rope rope(kDim, kTheta);
  Random random(2);
  std::vector<float> q(kDim), k(kDim);
  for (float& x : q) x = static_cast<float>(random.normal());
  for (float& x : k) x = static_cast<float>(random.normal());
  const auto product = [&](int64_t q_position, int64_t k_position) {
    std::vector<float> turned_q = q, turned_k = k;
    turn(rope, turned_q, q_position, kDim);
    turn(rope, turned_k, k_position, kDim);
    double sum = 0;
    for (int64_t i = 0; i < kDim; ++i) sum += double(turned_q[i]) * turned_k[i];
    return sum;
  };
  EXPECT_NEAR(product(7, 3), product(1007, 1003), 1e-4);
  EXPECT_GT(std::abs(product(7, 3) - product(8, 3)), 1e-2);
}

TEST_P(TurnedHeads, are_normalised_first_where_there_is_a_weight) {
  for (int64_t dim = 2; dim < 150; ++dim) {  // the last element of an odd head does not turn
    const Rope rope(dim, 1e4);
    Random random(static_cast<uint64_t>(dim));
    std::vector<float> head(dim), weight(dim);
    for (float& x : head) x = static_cast<float>(random.normal());
    for (float& x : weight) x = static_cast<float>(1 + 0.1 * random.normal());
    for (const bool with_weight : {false, true}) {
      std::vector<double> expected(head.begin(), head.end());
      if (with_weight) {
        double sum = 0;
        for (const float x : head) sum += double(x) * x;
        const double rms = std::sqrt(sum / static_cast<double>(dim) + 1e-6);
        for (int64_t i = 0; i < dim; ++i) expected[i] = head[i] / rms * weight[i];
      }
      for (int64_t i = 0; i < dim / 2; ++i) {
        const double angle = 77 * rope.inv_freq()[i];
        const double a = expected[i];
        const double b = expected[i + dim / 2];
        expected[i] = a * std::cos(angle) - b * std::sin(angle);
        expected[i + dim / 2] = b * std::cos(angle) + a * std::sin(angle);
      }
      std::vector<float> turned = head;
      turn_heads(run_, rope, turned, 77, dim,
                 with_weight ? std::span<const float>(weight) : std::span<const float>{}, 1e-6f);
      for (int64_t i = 0; i < dim; ++i) {
        // Elements below 6: four roundings of the norm, three of the turn, for two of them.
        EXPECT_NEAR(turned[i], expected[i], 2 * 6 * 7 * 0x1p-24) << dim << ", " << i;
      }
    }
  }
}

TEST(Rope, angles_are_those_of_successive_positions) {
  const Rope rope(rope_frequencies(8, 1e4), 1.34657);
  std::vector<float> cos(3 * 4), sin(3 * 4);
  rope.angles(cos, sin, 41);
  for (int i = 0; i < 12; ++i) {
    const int position = 41 + i / 4;
    const double angle = position * rope.inv_freq()[i % 4];
    EXPECT_FLOAT_EQ(cos[i], static_cast<float>(std::cos(angle) * rope.attention_factor()));
    EXPECT_FLOAT_EQ(sin[i], static_cast<float>(std::sin(angle) * rope.attention_factor()));
  }
}

SUBBYTE_FOR_EVERY_ISA(TurnedHeads);

}  // namespace
}  // namespace subbyte
