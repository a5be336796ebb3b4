#include "quantize/mxfp4.h"

#include <cmath>
#include <limits>
#include <vector>

#include "base/thread_pool.h"
#include "gtest/gtest.h"
#include "support/weights.h"

namespace subbyte {
namespace {

Result<Matrix> mxfp4(const Weights& weights, ScaleRule rule,
                     Rounding rounding = Rounding::kNearestEven) {
  ThreadPool pool(2);
  return quantize_mxfp4(weights.rows, weights.cols, rule, rounding, reader_of(weights), pool);
}

Weights block(std::vector<float> values) {
  values.resize(32);
  return one_row(std::move(values));
}

int scale_at(const Matrix& matrix, std::size_t index) {
  return std::to_integer<int>(matrix.view.scales[index]);
}

TEST(QuantizeMxfp4, block_by_hand) {
  const auto matrix = mxfp4(block({6, -4, 3, 0.5f, 0.25f, 0.75f, -2.5f, 5}), ScaleRule::kFloor);
  ASSERT_TRUE(matrix.ok());
  EXPECT_EQ(to_string(matrix->view.format), "e2m1 g32 scale e8m0");
  EXPECT_EQ(scale_at(*matrix, 0), 127);
  const std::vector<double> expected = {6, -4, 3, 0.5, 0, 1, -2, 4, 0};
  for (std::size_t col = 0; col < expected.size(); ++col) {
    EXPECT_EQ(weight_at(matrix->view, 0, static_cast<int64_t>(col)), expected[col]) << col;
  }
  // Low nibble first: 6 is code 7, -4 is code 14.
  EXPECT_EQ(std::to_integer<int>(matrix->view.codes[0]), 0xE7);
}

TEST(QuantizeMxfp4, rules_differ_between_six_and_eight) {
  const Weights weights = block({6.5f, 7.5f});
  const auto floor = mxfp4(weights, ScaleRule::kFloor);
  const auto ceil = mxfp4(weights, ScaleRule::kCeil);
  ASSERT_TRUE(floor.ok() && ceil.ok());
  EXPECT_EQ(scale_at(*floor, 0), 127);
  EXPECT_EQ(weight_at(floor->view, 0, 1), 6);  // saturated
  EXPECT_EQ(scale_at(*ceil, 0), 128);
  EXPECT_EQ(weight_at(ceil->view, 0, 1), 8);
  const auto below = mxfp4(block({6.99f}), ScaleRule::kBump175);
  const auto above = mxfp4(block({7.01f}), ScaleRule::kBump175);
  ASSERT_TRUE(below.ok() && above.ok());
  EXPECT_EQ(weight_at(below->view, 0, 0), 6);
  EXPECT_EQ(weight_at(above->view, 0, 0), 8);
}

TEST(QuantizeMxfp4, ties_follow_the_rounding) {
  const Weights weights = block({4, 0.75f, 1.75f, 3.5f});
  const auto even = mxfp4(weights, ScaleRule::kFloor);
  const auto lower = mxfp4(weights, ScaleRule::kFloor, Rounding::kNearestLowerIndex);
  ASSERT_TRUE(even.ok() && lower.ok());
  const double expected[3][2] = {{1, 0.5}, {2, 1.5}, {4, 3}};
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(weight_at(even->view, 0, i + 1), expected[i][0]);
    EXPECT_EQ(weight_at(lower->view, 0, i + 1), expected[i][1]);
  }
}

TEST(QuantizeMxfp4, representable_blocks_are_exact) {
  // Every value of e2m1 at every scale that binary32 reaches as a normal number.
  for (int exponent = -124; exponent <= 125; ++exponent) {
    std::vector<float> values;
    for (const float value : {0.f, .5f, 1.f, 1.5f, 2.f, 3.f, 4.f, 6.f}) {
      values.push_back(std::ldexp(value, exponent));
      values.push_back(-std::ldexp(value, exponent));
    }
    const Weights weights = block(values);
    for (const ScaleRule rule : {ScaleRule::kFloor, ScaleRule::kCeil, ScaleRule::kBump175}) {
      const auto matrix = mxfp4(weights, rule);
      ASSERT_TRUE(matrix.ok());
      EXPECT_EQ(scale_at(*matrix, 0), exponent + 127);
      for (int64_t col = 0; col < 32; ++col) {
        ASSERT_EQ(weight_at(matrix->view, 0, col), weights.at(0, col)) << exponent;
      }
    }
  }
}

TEST(QuantizeMxfp4, zeros_and_the_ends_of_binary32) {
  const auto zeros = mxfp4(block({}), ScaleRule::kFloor);
  ASSERT_TRUE(zeros.ok());
  EXPECT_EQ(scale_at(*zeros, 0), 0);
  for (int64_t col = 0; col < 32; ++col) EXPECT_EQ(weight_at(zeros->view, 0, col), 0);

  const auto tiny = mxfp4(block({0x1p-126f, 0x1p-149f}), ScaleRule::kFloor);
  ASSERT_TRUE(tiny.ok());
  EXPECT_EQ(scale_at(*tiny, 0), 0);
  EXPECT_EQ(weight_at(tiny->view, 0, 0), 0x1p-126);
  EXPECT_EQ(weight_at(tiny->view, 0, 1), 0);

  const auto largest = mxfp4(block({std::numeric_limits<float>::max()}), ScaleRule::kCeil);
  ASSERT_TRUE(largest.ok());
  EXPECT_EQ(scale_at(*largest, 0), 253);
  EXPECT_EQ(weight_at(largest->view, 0, 0), 0x1p128);
}

TEST(QuantizeMxfp4, noise_on_normal_weights) {
  // A second implementation in another language, 256,000 weights, gave 18.78, 18.76 and 19.02 dB.
  const Weights weights = normal_weights(256, 2048, 31);
  const auto sqnr = [&weights](ScaleRule rule) {
    const auto matrix = mxfp4(weights, rule);
    return matrix.ok() ? signal_to_noise(weights, matrix->view) : 0;
  };
  EXPECT_NEAR(sqnr(ScaleRule::kFloor), 18.78, 0.1);
  EXPECT_NEAR(sqnr(ScaleRule::kCeil), 18.76, 0.1);
  EXPECT_NEAR(sqnr(ScaleRule::kBump175), 19.02, 0.1);
}

TEST(QuantizeMxfp4, refuses_part_of_a_block) {
  for (const int64_t cols : {1, 31, 33, 80}) {
    const auto matrix = mxfp4(normal_weights(2, cols, 32), ScaleRule::kCeil);
    ASSERT_FALSE(matrix.ok());
    EXPECT_EQ(matrix.error().code, "quantize.shape");
  }
}

TEST(QuantizeMxfp4, refuses_weights_that_are_not_finite) {
  Weights weights = normal_weights(3, 64, 33);
  weights.at(2, 63) = std::nanf("");
  const auto matrix = mxfp4(weights, ScaleRule::kCeil);
  ASSERT_FALSE(matrix.ok());
  EXPECT_EQ(matrix.error().code, "quantize.not_finite");
  EXPECT_NE(matrix.error().message.find("row 2, column 63"), std::string::npos);
}

/// The numbers of a block under the best of all powers of two, each on its own.
double least_squares(const Weights& weights, int64_t row, int64_t first) {
  double least = std::numeric_limits<double>::infinity();
  for (int exponent = -20; exponent <= 20; ++exponent) {
    double sum = 0;
    for (int64_t k = first; k < first + 32; ++k) {
      double nearest = std::numeric_limits<double>::infinity();
      for (const double element : {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0}) {
        const double error = std::fabs(weights.at(row, k)) - std::ldexp(element, exponent);
        nearest = std::min(nearest, error * error);
      }
      sum += nearest;
    }
    least = std::min(least, sum);
  }
  return least;
}

TEST(QuantizeMxfp4, without_a_rule_no_other_power_of_two_has_a_smaller_error) {
  const Weights weights = normal_weights(40, 128, 6);
  ThreadPool pool(2);
  const auto matrix = quantize_mxfp4(weights.rows, weights.cols, reader_of(weights), pool);
  ASSERT_TRUE(matrix.ok());
  double squares = 0;
  for (int64_t n = 0; n < weights.rows; ++n) {
    for (int64_t first = 0; first < weights.cols; first += 32) {
      double found = 0;
      for (int64_t k = first; k < first + 32; ++k) {
        found += std::pow(weights.at(n, k) - weight_at(matrix->view, n, k), 2);
      }
      EXPECT_NEAR(found, least_squares(weights, n, first), 1e-12 * found);
      squares += found;
    }
  }
  for (const ScaleRule rule : {ScaleRule::kFloor, ScaleRule::kCeil, ScaleRule::kBump175}) {
    const auto other = mxfp4(weights, rule);
    ASSERT_TRUE(other.ok());
    double sum = 0;
    for (int64_t i = 0; i < weights.rows * weights.cols; ++i) {
      const int64_t n = i / weights.cols, k = i % weights.cols;
      sum += std::pow(weights.at(n, k) - weight_at(other->view, n, k), 2);
    }
    EXPECT_GT(sum, squares);
  }
}

TEST(QuantizeMxfp4, without_a_rule_zeros_stay_zeros) {
  const Weights weights = block({0, 0, 0});
  ThreadPool pool(1);
  const auto matrix = quantize_mxfp4(1, 32, reader_of(weights), pool);
  ASSERT_TRUE(matrix.ok());
  for (int64_t k = 0; k < 32; ++k) EXPECT_EQ(weight_at(matrix->view, 0, k), 0.0);
}

}  // namespace
}  // namespace subbyte
