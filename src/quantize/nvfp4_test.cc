#include "quantize/nvfp4.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "base/random.h"
#include "base/thread_pool.h"
#include "quantize/e2m1_codes.h"
#include "support/weights.h"

namespace subbyte {
namespace {

constexpr std::array<double, 8> kElements = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

/// The numbers of e4m3 from its definition: 2^(e - 7) * (1 + m / 8), subnormal for e = 0.
double e4m3(int code) {
  const int exponent = code >> 3, mantissa = code & 7;
  if (exponent == 0) return std::ldexp(mantissa, -9);
  return std::ldexp(8 + mantissa, exponent - 10);
}

/// The number of e4m3 that is nearest, of two the one with the even code.
double nearest_e4m3(double value) {
  int best = 1;
  for (int code = 2; code <= 126; ++code) {
    const double gain = std::fabs(value - e4m3(best)) - std::fabs(value - e4m3(code));
    if (gain > 0 || (gain == 0 && code % 2 == 0)) best = code;
  }
  return e4m3(best);
}

/// The least sum of squares with that step, each weight on its own.
double least_squares(const std::vector<double>& weights, double step) {
  double sum = 0;
  for (const double weight : weights) {
    double least = std::numeric_limits<double>::infinity();
    for (const double element : kElements) {
      least = std::min(least, std::fabs(std::fabs(weight) - element * step));
    }
    sum += least * least;
  }
  return sum;
}

Result<Matrix> nvfp4(const Weights& weights, const Nvfp4Options& options) {
  ThreadPool pool(2);
  return quantize_nvfp4(weights.rows, weights.cols, options, reader_of(weights), pool);
}

double largest_of(const Weights& weights) {
  double largest = 0;
  for (const float value : weights.values) largest = std::max(largest, std::fabs(double{value}));
  return largest;
}

/// The better of both scales for each block, searched for without any of the library's codecs.
TEST(QuantizeNvfp4, each_block_has_the_better_of_two_scales) {
  const Weights weights = normal_weights(24, 96, 3);
  for (const bool search : {true, false}) {
    const auto matrix = nvfp4(weights, {.four_over_six = search});
    ASSERT_TRUE(matrix.ok()) << matrix.error().message;
    const double range = 6 * (search ? 256.0 : 448.0);
    const double factor = 1.0 / static_cast<float>(range / largest_of(weights));
    EXPECT_EQ(matrix->view.tensor_scale, factor);
    int fours = 0;
    for (int64_t n = 0; n < weights.rows; ++n) {
      for (int64_t first = 0; first < weights.cols; first += 16) {
        std::vector<double> block;
        double largest = 0, found = 0;
        for (int64_t k = first; k < first + 16; ++k) {
          block.push_back(weights.at(n, k));
          largest = std::max(largest, std::fabs(block.back()));
          found += std::pow(block.back() - weight_at(matrix->view, n, k), 2);
        }
        const double six = least_squares(block, nearest_e4m3(largest / 6 / factor) * factor);
        const double four = least_squares(block, nearest_e4m3(largest / 4 / factor) * factor);
        EXPECT_NEAR(found, search ? std::min(six, four) : six, 1e-9 * six);
        fours += four < six ? 1 : 0;
      }
    }
    EXPECT_GT(fours, 30);  // of 144: a search that is never used shows nothing
    EXPECT_LT(fours, 114);
  }
}

TEST(QuantizeNvfp4, the_search_lowers_the_error) {
  const Weights weights = normal_weights(64, 256, 9);
  double noise[2] = {};
  for (const bool search : {false, true}) {
    const auto matrix = nvfp4(weights, {.four_over_six = search});
    ASSERT_TRUE(matrix.ok());
    for (int64_t n = 0; n < weights.rows; ++n) {
      for (int64_t k = 0; k < weights.cols; ++k) {
        noise[search] += std::pow(weights.at(n, k) - weight_at(matrix->view, n, k), 2);
      }
    }
  }
  EXPECT_LT(noise[1], 0.95 * noise[0]);
}

TEST(QuantizeNvfp4, matrices_may_share_a_factor_that_a_float_holds_either_way) {
  const Weights weights = normal_weights(2, 32, 4);
  const auto divides = nvfp4(weights, {.largest = 7});
  const auto multiplies = nvfp4(weights, {.largest = 7, .factor = TensorFactor::kMultiplies});
  ASSERT_TRUE(divides.ok() && multiplies.ok());
  EXPECT_EQ(divides->view.tensor_scale, 1.0 / static_cast<float>(6 * 256 / 7.0));
  EXPECT_EQ(multiplies->view.tensor_scale, static_cast<float>(7.0 / (6 * 256)));
}

TEST(QuantizeNvfp4, zeros_and_the_ends_of_the_range) {
  const auto zeros = nvfp4(one_row(std::vector<float>(16, 0.0f)), {});
  ASSERT_TRUE(zeros.ok());
  EXPECT_EQ(zeros->view.tensor_scale, 1);
  std::vector<float> values(64, 0.0f);
  values[0] = 3e38f;   // the factor's inverse is far below 1
  values[17] = 1e-3f;  // becomes 0 or the least there is, and no NaN
  const auto wide = nvfp4(one_row(values), {});
  ASSERT_TRUE(wide.ok());
  EXPECT_NEAR(weight_at(wide->view, 0, 0), 3e38, 3e38 * 0x1p-4);
  for (int64_t k = 1; k < 64; ++k) EXPECT_LT(std::fabs(weight_at(wide->view, 0, k)), 3e34) << k;
  const auto tiny = nvfp4(one_row(std::vector<float>(16, 1e-45f)), {});
  ASSERT_TRUE(tiny.ok());
  EXPECT_TRUE(std::isfinite(weight_at(tiny->view, 0, 3)));
  values[5] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(nvfp4(one_row(values), {}).error().code, "quantize.not_finite");
}

TEST(E2m1Codes, are_those_of_the_scalar_codec) {
  const FormatInfo& element = info(Format::kE2M1);
  for (int i = -2000; i <= 2000; ++i) {
    const double value = i / 256.0;  // every tie among them
    EXPECT_EQ(e2m1_code(value), element.encode(value, Rounding::kNearestEven)) << value;
  }
  EXPECT_EQ(e2m1_code(-0.0), 8);
}

/// Two scales at once give the codes and the sums of each alone, to the bit.
TEST(E2m1Codes, of_two_scales_are_those_of_each) {
  Random random(6);
  for (int round = 0; round < 200; ++round) {
    std::array<float, 16> weights;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const bool is_tie = round % 3 == 0;
      weights[i] = static_cast<float>(is_tie ? static_cast<double>(random.below(57)) / 4 - 7
                                             : 3 * random.normal());
    }
    weights[3] = -0.0f;
    E2m1Trials<16> trials = {.scales = {round % 2 == 0 ? 1.0 : 4.0 / 3, 0.75}};
    std::array<uint8_t, 16> found;
    const int better = encode_e2m1_better(weights, trials, found);
    std::array<uint8_t, 16> codes[2];
    double errors[2];
    for (int t = 0; t < 2; ++t) {
      errors[t] = encode_e2m1(weights, trials.scales[t], codes[t]);
      EXPECT_EQ(trials.errors[t], errors[t]) << round;
      errors[t] *= trials.scales[t] * trials.scales[t];
    }
    EXPECT_EQ(found, codes[better]) << round;
    EXPECT_LE(errors[better], errors[1 - better] * (1 + 1e-15)) << round;
  }
}

}  // namespace
}  // namespace subbyte
