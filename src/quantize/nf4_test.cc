#include "quantize/nf4.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>

#include "base/thread_pool.h"
#include "support/weights.h"

namespace subbyte {
namespace {

/// The table as the paper of QLoRA prints it, appendix E.
constexpr std::array<double, 16> kTable = {-1.0,
                                           -0.6961928009986877,
                                           -0.5250730514526367,
                                           -0.39491748809814453,
                                           -0.28444138169288635,
                                           -0.18477343022823334,
                                           -0.09105003625154495,
                                           0.0,
                                           0.07958029955625534,
                                           0.16093020141124725,
                                           0.24611230194568634,
                                           0.33791524171829224,
                                           0.44070982933044434,
                                           0.5626170039176941,
                                           0.7229568362236023,
                                           1.0};

float scale_at(const Matrix& matrix, int64_t index) {
  float scale = 0;
  std::memcpy(&scale, matrix.view.scales.data() + 4 * index, 4);
  return scale;
}

Result<Matrix> nf4(const Weights& weights, int64_t block) {
  ThreadPool pool(2);
  return quantize_nf4(weights.rows, weights.cols, block, reader_of(weights), pool);
}

TEST(QuantizeNf4, every_code_is_the_nearest_number_of_the_table) {
  const Weights weights = normal_weights(17, 192, 5);
  const auto matrix = nf4(weights, 64);
  ASSERT_TRUE(matrix.ok()) << matrix.error().message;
  EXPECT_EQ(to_string(matrix->view.format), "nf4 g64 scale f32");
  for (int64_t n = 0; n < weights.rows; ++n) {
    for (int64_t k = 0; k < weights.cols; ++k) {
      float largest = 0;
      for (int64_t i = k / 64 * 64; i < k / 64 * 64 + 64; ++i) {
        largest = std::max(largest, std::fabs(weights.at(n, i)));
      }
      ASSERT_EQ(scale_at(*matrix, n * 3 + k / 64), largest);
      const double error = std::fabs(weights.at(n, k) - weight_at(matrix->view, n, k));
      for (const double value : kTable) {
        ASSERT_LE(error, std::fabs(weights.at(n, k) - value * largest) * (1 + 1e-12));
      }
    }
  }
}

TEST(QuantizeNf4, of_two_that_are_equally_near_the_lower_one) {
  std::vector<float> values(32, 0.0f);
  values[0] = 1;
  values[1] = static_cast<float>((kTable[8] + kTable[7]) / 2);  // 0.0398, exact: 7 is 0
  values[2] = std::nextafter(values[1], 1.0f);
  values[3] = -values[0];
  const auto matrix = nf4(one_row(values), 32);
  ASSERT_TRUE(matrix.ok());
  EXPECT_EQ(code_at(matrix->view, 0, 1), 7u);
  EXPECT_EQ(code_at(matrix->view, 0, 2), 8u);
  EXPECT_EQ(code_at(matrix->view, 0, 3), 0u);
  EXPECT_EQ(code_at(matrix->view, 0, 4), 7u);
}

TEST(QuantizeNf4, zeros_stay_zeros_and_what_is_not_finite_is_refused) {
  const auto zeros = nf4(one_row(std::vector<float>(64, 0.0f)), 64);
  ASSERT_TRUE(zeros.ok());
  EXPECT_EQ(scale_at(*zeros, 0), 1.0f);
  for (int64_t k = 0; k < 64; ++k) EXPECT_EQ(weight_at(zeros->view, 0, k), 0.0);
  std::vector<float> values(64, 1.0f);
  values[40] = NAN;
  const auto refused = nf4(one_row(values), 64);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, "quantize.not_finite");
  EXPECT_EQ(nf4(one_row(std::vector<float>(48, 1.0f)), 32).error().code, "quantize.shape");
}

}  // namespace
}  // namespace subbyte
