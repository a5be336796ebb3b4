#include "base/token_weight.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "base/random.h"

namespace subbyte {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(TokenWeight, exp_is_within_its_bound_of_long_double) {
  Random random(1);
  const auto expect_near = [](double x) {
    const long double exact = std::exp(static_cast<long double>(x));
    const long double error = std::fabs(static_cast<long double>(exp_of_negative(x)) - exact);
    ASSERT_LE(error, 0x1p-51L * exact) << x;
  };
  for (int i = 0; i <= 1'000'000; ++i) expect_near(-30.0 * i / 1'000'000);
  for (int i = 0; i < 1'000'000; ++i) expect_near(-30 * random.uniform());
  for (int i = 1; i < 60; ++i) {  // both sides of where n changes, and near zero
    const double change = -(i - 0.5) * std::log(2.0);
    for (const double x : {change, std::nextafter(change, 0), std::nextafter(change, -99)}) {
      if (x > -30) expect_near(x);
    }
    expect_near(-std::ldexp(1.0, -i));
  }
}

TEST(TokenWeight, is_the_rounded_probability_relative_to_the_best) {
  Random random(2);
  for (int i = 0; i < 200'000; ++i) {
    const double temperature = std::exp(6 * random.uniform() - 3);
    const auto best = static_cast<float>(40 * random.uniform() - 20);
    const auto logit = static_cast<float>(best - 30 * temperature * random.uniform());
    const long double x = (static_cast<long double>(logit) - best) / temperature;
    const long double exact = std::exp(x) * kBestWeight;
    // Half a unit, and the error of x, of its exp() and of the product.
    const long double bound = 0.5L + exact * (0x1p-50L + std::fabs(x) * 0x1p-52L);
    ASSERT_LE(std::fabs(static_cast<long double>(token_weight(logit, best, temperature)) - exact),
              bound)
        << logit << " " << best << " " << temperature;
  }
}

TEST(TokenWeight, of_the_best_and_of_what_is_excluded) {
  for (const double temperature : {1e-300, 1e-9, 1.0, 100.0}) {
    EXPECT_EQ(token_weight(7.5f, 7.5f, temperature), kBestWeight);
    EXPECT_EQ(token_weight(-kInfinity, 7.5f, temperature), 0u);
  }
  EXPECT_EQ(token_weight(-FLT_MAX, FLT_MAX, 1e-300), 0u);
  EXPECT_EQ(token_weight(0.0f, 27.1f, 1), 0u);  // exp(-27.1) * 2^38 = 0.47
  EXPECT_EQ(token_weight(0.0f, 27.0f, 1), 1u);  // 0.52
}

TEST(TokenWeight, a_smaller_logit_has_at_most_one_unit_more) {
  for (const double temperature : {0.3, 1.0, 100.0}) {
    for (float logit = 9; logit > 1; logit -= 0.01f) {
      const uint64_t weight = token_weight(logit, 9.0f, temperature);
      const float next = std::nextafter(logit, 0.0f);
      ASSERT_LE(token_weight(next, 9.0f, temperature), weight + 1) << logit;
    }
  }
}

TEST(TokenWeight, what_top_p_and_min_p_ask_for) {
  EXPECT_EQ(weight_of_top_p(1, 1000), 1000u);
  EXPECT_EQ(weight_of_top_p(0.5, 1000), 500u);
  EXPECT_EQ(weight_of_top_p(0.5, 1001), 501u);
  EXPECT_EQ(weight_of_top_p(1e-6, 1000), 1u);
  const uint64_t largest = kBestWeight << 24;
  EXPECT_EQ(weight_of_top_p(1, largest - 1), largest - 1);  // not rounded up with the double
  EXPECT_EQ(weight_of_min_p(0), 1u);
  EXPECT_EQ(weight_of_min_p(0.25), kBestWeight / 4);
  EXPECT_EQ(weight_of_min_p(1), kBestWeight);
}

TEST(TokenWeight, a_draw_is_one_of_the_units) {
  const double last = 1 - 0x1p-53;
  for (const uint64_t total : {uint64_t{1}, kBestWeight, (kBestWeight << 24) - 1}) {
    EXPECT_EQ(drawn_weight(0, total), 1u);
    EXPECT_LE(drawn_weight(last, total), total);
  }
  EXPECT_EQ(drawn_weight(last, kBestWeight), kBestWeight);
  EXPECT_EQ(drawn_weight(0.5, 10), 6u);
  EXPECT_EQ(drawn_weight(0.49, 10), 5u);
}

TEST(LogitOrder, is_that_of_the_numbers) {
  const std::vector<float> ascending = {-kInfinity, -FLT_MAX, -2, -1.5f, -FLT_MIN, -0x1p-149f, 0,
                                        0x1p-149f,  FLT_MIN,  1,  1.5f,  FLT_MAX,  kInfinity};
  for (std::size_t i = 0; i < ascending.size(); ++i) {
    EXPECT_EQ(logit_of_order(logit_order(ascending[i])), ascending[i]);
  }
  for (std::size_t i = 1; i < ascending.size(); ++i) {
    EXPECT_LT(logit_order(ascending[i - 1]), logit_order(ascending[i]));
  }
  EXPECT_EQ(logit_order(-0.0f), logit_order(0.0f));
  for (const float nan : {std::nanf(""), -std::nanf("")}) {
    EXPECT_GT(logit_order(nan), logit_order(kInfinity));
  }
}

TEST(Penalized, divides_positive_and_multiplies_negative_logits) {
  EXPECT_EQ(penalized(3, 2), 1.5f);
  EXPECT_EQ(penalized(-3, 2), -6.0f);
  EXPECT_EQ(penalized(0, 2), 0.0f);
  EXPECT_EQ(penalized(1, 3), static_cast<float>(1.0 / 3));
  EXPECT_EQ(penalized(3e38f, 0.01), FLT_MAX);
  EXPECT_EQ(penalized(-3e38f, 100), -FLT_MAX);
  EXPECT_EQ(penalized(-kInfinity, 2), -kInfinity);
  EXPECT_EQ(penalized(kInfinity, 2), kInfinity);
  EXPECT_TRUE(std::isnan(penalized(std::nanf(""), 2)));
}

}  // namespace
}  // namespace subbyte
