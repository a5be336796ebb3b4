#include "support/compare.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace subbyte::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Comparison compare_one(double actual, double expected, double bound) {
  const float found = static_cast<float>(actual);
  return compare_matmul({&found, 1}, {&expected, 1}, {&bound, 1});
}

TEST(CompareMatmul, inside_the_bound_is_good_and_outside_is_bad) {
  EXPECT_TRUE(compare_one(1.25, 1.0, 0.25));
  EXPECT_FALSE(compare_one(1.25, 1.0, 0.2));
  EXPECT_FALSE(compare_one(0.75, 1.0, 0.2));
  EXPECT_EQ(compare_one(1.25, 1.0, 0.2).worst_ratio, 1.25);
}

TEST(CompareMatmul, a_wrong_sign_is_bad_but_zero_has_none) {
  EXPECT_FALSE(compare_one(-1.0, 1.0, 0.5));
  EXPECT_TRUE(compare_one(-0.0, 0.0, 0.0));
}

TEST(CompareMatmul, a_bound_of_zero_wants_the_exact_value) {
  EXPECT_TRUE(compare_one(0.0, 0.0, 0.0));
  EXPECT_TRUE(compare_one(3.0, 3.0, 0.0));
  EXPECT_FALSE(compare_one(1e-45, 0.0, 0.0));
}

TEST(CompareMatmul, nan_matches_nan_alone) {
  EXPECT_TRUE(compare_one(kNan, kNan, 1.0));
  EXPECT_FALSE(compare_one(kNan, 1.0, 1e30));
  EXPECT_FALSE(compare_one(1.0, kNan, 1e30));
  EXPECT_FALSE(compare_one(kInfinity, kNan, 1.0));
}

TEST(CompareMatmul, infinity_matches_the_same_infinity) {
  EXPECT_TRUE(compare_one(kInfinity, kInfinity, 0.0));
  EXPECT_FALSE(compare_one(-kInfinity, kInfinity, 1.0));
  EXPECT_FALSE(compare_one(3e38, kInfinity, 1.0));
  EXPECT_FALSE(compare_one(kInfinity, 1.0, kInfinity));
}

TEST(CompareMatmul, a_bound_that_is_no_bound_is_bad) {
  EXPECT_FALSE(compare_one(1.0, 1.0, kNan));
  EXPECT_FALSE(compare_one(1.0, 1.0, -1.0));
}

TEST(CompareMatmul, nothing_to_compare_is_bad) {
  EXPECT_FALSE(compare_matmul({}, {}, {}));
  const std::vector<float> two = {1, 2};
  const std::vector<double> one = {1};
  EXPECT_FALSE(compare_matmul(two, one, one));
}

TEST(CompareMatmul, reports_the_first_bad_element_and_the_worst_ratio) {
  const std::vector<float> actual = {1, 2, 3.5F, 9};
  const std::vector<double> expected = {1, 2, 3, 4};
  const std::vector<double> bounds = {1, 1, 0.25, 1};
  const Comparison result = compare_matmul(actual, expected, bounds);
  EXPECT_FALSE(result);
  EXPECT_EQ(result.first_bad, 2);
  EXPECT_EQ(result.worst_ratio, 5);
  EXPECT_EQ(result.message, "element 2: expected 3 within 0.25, found 3.5");
}

TEST(RoundingBound, is_a_little_more_than_n_times_u) {
  EXPECT_GT(rounding_bound(100), 100 * 0x1p-24);
  EXPECT_LT(rounding_bound(100), 100.001 * 0x1p-24);
}

}  // namespace
}  // namespace subbyte::testing
