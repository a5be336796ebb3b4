// Against the definition: the largest weight of a block of 128 x 128 becomes 448, and no code is
// farther from its weight than the codes beside it.

#include "quantize/fp8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/random.h"
#include "base/thread_pool.h"

namespace subbyte {
namespace {

std::vector<float> random_weights(int64_t rows, int64_t cols) {
  Random random(static_cast<uint64_t>(rows * 10000 + cols));
  std::vector<float> weights(static_cast<std::size_t>(rows * cols));
  for (float& weight : weights) weight = static_cast<float>(0.02 * random.normal());
  return weights;
}

RowReader reader(const std::vector<float>& weights, int64_t cols) {
  return [&weights, cols](int64_t row, float* out) {
    std::copy_n(weights.begin() + row * cols, cols, out);
  };
}

float scale_at(const MatrixView& view, int64_t row, int64_t group) {
  float scale = 0;
  std::memcpy(&scale, view.scales.data() + (row * view.groups() + group) * 4, 4);
  return scale;
}

TEST(QuantizeFp8, gives_each_block_the_factor_of_its_largest_weight) {
  for (const auto& [rows, cols] :
       {std::pair<int64_t, int64_t>{128, 128}, {320, 192}, {3, 576}, {257, 40}}) {
    const std::vector<float> weights = random_weights(rows, cols);
    ThreadPool pool(3);
    const auto matrix = quantize_fp8(rows, cols, reader(weights, cols), pool);
    ASSERT_TRUE(matrix.ok()) << matrix.error().message;
    const MatrixView& view = matrix->view;
    EXPECT_EQ(view.format, (WeightFormat{Format::kE4M3, Format::kF32, Zero::kNone, 128}));
    for (int64_t n = 0; n < rows; ++n) {
      for (int64_t k = 0; k < cols; ++k) {
        float largest = 0;
        if (n % 128 != 0 || k % 128 != 0) {
          ASSERT_EQ(scale_at(view, n, k / 128), scale_at(view, n / 128 * 128, k / 128));
        } else {
          for (int64_t i = n; i < std::min(n + 128, rows); ++i) {
            for (int64_t j = k; j < std::min(k + 128, cols); ++j) {
              largest = std::max(largest, std::fabs(weights[i * cols + j]));
            }
          }
          ASSERT_EQ(scale_at(view, n, k / 128), largest / 448);
        }
        // Half of what lies between codes: 2^-4 of a normal number, 2^-10 below 2^-6.
        const double weight = weights[n * cols + k];
        const double bound =
            std::max(std::fabs(weight) * 0x1.0001p-4, 0x1p-10 * scale_at(view, n, k / 128));
        ASSERT_NEAR(weight_at(view, n, k), weight, bound) << n << ", " << k;
      }
    }
  }
}

TEST(QuantizeFp8, keeps_numbers_that_have_codes) {
  // 448 in each block makes its factor 1.
  std::vector<float> weights(128 * 256);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const auto code = static_cast<uint32_t>(i % 254);
    weights[i] = static_cast<float>(info(Format::kE4M3).decode(code < 127 ? code : code + 1));
  }
  ThreadPool pool(2);
  const auto matrix = quantize_fp8(128, 256, reader(weights, 256), pool);
  ASSERT_TRUE(matrix.ok()) << matrix.error().message;
  for (int64_t i = 0; i < 128 * 256; ++i) {
    ASSERT_EQ(weight_at(matrix->view, i / 256, i % 256), weights[i]) << i;
  }
}

/// Subnormal codes, ties and what is beyond the middle of the last two among them.
TEST(QuantizeFp8, codes_are_those_of_the_scalar_codec) {
  std::vector<float> weights(128 * 256);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double size =
        std::ldexp(1 + static_cast<double>(i % 64) / 64, static_cast<int>(i % 21) - 12);
    weights[i] = static_cast<float>(std::min(size, 448.0) * (i % 5 == 0 ? -1 : 1));
  }
  weights[0] = weights[128] = 448;
  ThreadPool pool(2);
  const auto matrix = quantize_fp8(128, 256, reader(weights, 256), pool);
  ASSERT_TRUE(matrix.ok()) << matrix.error().message;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    ASSERT_EQ(std::to_integer<uint32_t>(matrix->view.codes[i]),
              info(Format::kE4M3).encode(weights[i], Rounding::kNearestEven))
        << weights[i];
  }
}

TEST(QuantizeFp8, zeros_stay_zeros_and_tiny_numbers_have_codes) {
  std::vector<float> weights(4 * 256);
  weights[130] = std::numeric_limits<float>::denorm_min();
  ThreadPool pool(1);
  const auto matrix = quantize_fp8(4, 256, reader(weights, 256), pool);
  ASSERT_TRUE(matrix.ok()) << matrix.error().message;
  EXPECT_EQ(scale_at(matrix->view, 3, 0), 1);
  EXPECT_EQ(scale_at(matrix->view, 3, 1), std::numeric_limits<float>::min());
  EXPECT_EQ(weight_at(matrix->view, 1, 5), 0);
}

TEST(QuantizeFp8, gives_the_same_bytes_for_any_number_of_threads) {
  const std::vector<float> weights = random_weights(700, 200);
  std::vector<std::byte> first;
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    const auto matrix = quantize_fp8(700, 200, reader(weights, 200), pool);
    ASSERT_TRUE(matrix.ok());
    std::vector<std::byte> bytes(matrix->view.codes.begin(), matrix->view.codes.end());
    bytes.insert(bytes.end(), matrix->view.scales.begin(), matrix->view.scales.end());
    if (first.empty()) first = bytes;
    EXPECT_EQ(bytes, first) << threads;
  }
}

TEST(QuantizeFp8, refuses_what_is_not_finite_and_shapes_that_are_none) {
  ThreadPool pool(4);
  std::vector<float> weights = random_weights(300, 8);
  weights[150 * 8 + 3] = std::numeric_limits<float>::infinity();
  weights[290 * 8] = std::numeric_limits<float>::quiet_NaN();
  const auto refused = quantize_fp8(300, 8, reader(weights, 8), pool);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, "quantize.not_finite");
  EXPECT_NE(refused.error().message.find("row 150, column 3"), std::string::npos)
      << refused.error().message;
  EXPECT_EQ(quantize_fp8(0, 8, reader(weights, 8), pool).error().code, "quantize.shape");
  EXPECT_EQ(quantize_fp8(8, -1, reader(weights, 8), pool).error().code, "quantize.shape");
  EXPECT_EQ(quantize_fp8(INT64_MAX, 8, reader(weights, 8), pool).error().code, "quantize.shape");
}

}  // namespace
}  // namespace subbyte
