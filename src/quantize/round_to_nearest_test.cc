#include "quantize/round_to_nearest.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "gtest/gtest.h"
#include "support/weights.h"

namespace subbyte {
namespace {

Result<Matrix> min_max(const Weights& weights, int64_t group_size, int bits, int threads = 1) {
  ThreadPool pool(threads);
  return quantize_min_max(weights.rows, weights.cols, group_size, bits, reader_of(weights), pool);
}

Result<Matrix> symmetric(const Weights& weights, int64_t group_size, int bits) {
  ThreadPool pool(1);
  return quantize_symmetric(weights.rows, weights.cols, group_size, bits, reader_of(weights), pool);
}

std::vector<uint32_t> codes_of(const MatrixView& matrix) {
  std::vector<uint32_t> codes;
  for (int64_t i = 0; i < matrix.rows * matrix.cols; ++i) {
    codes.push_back(code_at(matrix, i / matrix.cols, i % matrix.cols));
  }
  return codes;
}

uint16_t scale_at(const MatrixView& matrix, std::size_t index) {
  uint16_t code = 0;
  std::memcpy(&code, matrix.scales.data() + 2 * index, 2);
  return code;
}

int zero_at(const MatrixView& matrix, std::size_t index) {
  return std::to_integer<int>(matrix.zeros[index]);
}

TEST(QuantizeMinMax, fifteen_steps_of_one_are_exact) {
  const auto matrix = min_max(one_row({-5, 10, 0, 1, -3, 7, 2, 9}), 8, 4);
  ASSERT_TRUE(matrix.ok());
  EXPECT_EQ(scale_at(matrix->view, 0), 0x3C00);
  EXPECT_EQ(zero_at(matrix->view, 0), 5);
  EXPECT_EQ(codes_of(matrix->view), (std::vector<uint32_t>{0, 15, 5, 6, 2, 12, 7, 14}));
  EXPECT_EQ(to_string(matrix->view.format), "u4 g8 scale f16 zero u8");
}

TEST(QuantizeMinMax, rounds_ties_to_even_before_the_zero_point_is_added) {
  // Scale 1, zero 5. 0.5 -> 0, 1.5 -> 2, 2.5 -> 2, -0.5 -> 0, -1.5 -> -2.
  const auto matrix = min_max(one_row({-5, 10, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 0}), 8, 4);
  ASSERT_TRUE(matrix.ok());
  EXPECT_EQ(codes_of(matrix->view), (std::vector<uint32_t>{0, 15, 5, 7, 7, 5, 3, 5}));
}

TEST(QuantizeMinMax, codes_are_for_the_stored_scale) {
  // 1000 / 15 = 66.667 is 66.6875 as f16 (steps of 1/16). Half of 9.5 steps lies between the two:
  // 633.45 / 66.667 = 9.502 would be code 10, 633.45 / 66.6875 = 9.499 is code 9.
  const auto matrix = min_max(one_row({1000, 633.45f}), 2, 4);
  ASSERT_TRUE(matrix.ok());
  EXPECT_EQ(info(Format::kF16).decode(scale_at(matrix->view, 0)), 66.6875);
  EXPECT_EQ(codes_of(matrix->view), (std::vector<uint32_t>{15, 9}));
}

TEST(QuantizeMinMax, range_always_includes_zero) {
  const auto positive = min_max(one_row({7.5f, 15, 10, 12}), 4, 4);
  ASSERT_TRUE(positive.ok());
  EXPECT_EQ(scale_at(positive->view, 0), 0x3C00);
  EXPECT_EQ(zero_at(positive->view, 0), 0);
  EXPECT_EQ(codes_of(positive->view), (std::vector<uint32_t>{8, 15, 10, 12}));

  const auto negative = min_max(one_row({-7.5f, -15, -10, -12}), 4, 4);
  ASSERT_TRUE(negative.ok());
  EXPECT_EQ(scale_at(negative->view, 0), 0x3C00);
  EXPECT_EQ(zero_at(negative->view, 0), 15);
  EXPECT_EQ(codes_of(negative->view), (std::vector<uint32_t>{7, 0, 5, 3}));
}

TEST(QuantizeMinMax, group_of_zeros_has_scale_one_and_stays_zero) {
  for (const int bits : {2, 3, 4, 8}) {
    const auto matrix = min_max(one_row({0, -0.0f, 0, 0}), 4, bits);
    ASSERT_TRUE(matrix.ok());
    EXPECT_EQ(scale_at(matrix->view, 0), 0x3C00);
    for (int64_t col = 0; col < 4; ++col) EXPECT_EQ(weight_at(matrix->view, 0, col), 0);
  }
}

TEST(QuantizeMinMax, single_weight) {
  for (const float weight : {3.0f, -3.0f}) {
    const auto matrix = min_max(one_row({weight}), 1, 4);
    ASSERT_TRUE(matrix.ok());
    // 3 / 15 = 0.2 as f16 is 0.199951171875.
    EXPECT_EQ(weight_at(matrix->view, 0, 0), std::copysign(15 * 0.199951171875, weight));
  }
}

TEST(QuantizeMinMax, exact_zeros_stay_exact_zeros) {
  Weights weights = normal_weights(4, 128, 21);
  for (int64_t row = 0; row < 4; ++row) weights.at(row, 17 * row) = 0;
  for (const int bits : {2, 3, 4, 8}) {
    const auto matrix = min_max(weights, 32, bits);
    ASSERT_TRUE(matrix.ok());
    for (int64_t row = 0; row < 4; ++row) EXPECT_EQ(weight_at(matrix->view, row, 17 * row), 0);
  }
}

TEST(QuantizeMinMax, each_group_of_each_row_is_on_its_own) {
  const Weights weights = {2, 4, {0, 15, 0, 30, 0, -15, 0, 60}};
  const auto matrix = min_max(weights, 2, 4);
  ASSERT_TRUE(matrix.ok());
  EXPECT_EQ(scale_at(matrix->view, 0), 0x3C00);  // 1
  EXPECT_EQ(scale_at(matrix->view, 1), 0x4000);  // 2
  EXPECT_EQ(scale_at(matrix->view, 2), 0x3C00);  // 1
  EXPECT_EQ(scale_at(matrix->view, 3), 0x4400);  // 4
  EXPECT_EQ(zero_at(matrix->view, 1), 0);
  EXPECT_EQ(zero_at(matrix->view, 2), 15);
  EXPECT_EQ(codes_of(matrix->view), (std::vector<uint32_t>{0, 15, 0, 15, 15, 0, 0, 15}));
}

TEST(QuantizeMinMax, group_size_zero_is_the_whole_row) {
  const auto matrix = min_max(one_row({0, 1, 2, 3, 4, 5, 15}), 0, 4);
  ASSERT_TRUE(matrix.ok());
  EXPECT_EQ(matrix->view.groups(), 1);
  EXPECT_EQ(codes_of(matrix->view), (std::vector<uint32_t>{0, 1, 2, 3, 4, 5, 15}));
}

TEST(QuantizeMinMax, tiny_ranges_get_the_smallest_scale) {
  const float step = 0x1p-24f;
  const auto matrix = min_max(one_row({2 * step, -step, step / 4, 0}), 4, 4);
  ASSERT_TRUE(matrix.ok());
  EXPECT_EQ(scale_at(matrix->view, 0), 1);
  EXPECT_EQ(codes_of(matrix->view), (std::vector<uint32_t>{3, 0, 1, 1}));
}

TEST(QuantizeMinMax, errors_stay_within_half_a_step) {
  for (const int bits : {2, 3, 4, 5, 6, 7, 8}) {
    const int q_max = (1 << bits) - 1;
    const Weights weights = normal_weights(16, 256, 22);
    const auto matrix = min_max(weights, 64, bits);
    ASSERT_TRUE(matrix.ok());
    for (int64_t row = 0; row < 16; ++row) {
      for (int64_t col = 0; col < 256; ++col) {
        const std::size_t group = static_cast<std::size_t>(row * 4 + col / 64);
        const double scale = info(Format::kF16).decode(scale_at(matrix->view, group));
        const double error = weight_at(matrix->view, row, col) - weights.at(row, col);
        ASSERT_LE(std::fabs(error), (0.5 + q_max * 0x1p-11) * scale) << bits;
      }
    }
  }
}

TEST(QuantizeMinMax, noise_on_normal_weights) {
  // A second implementation in another language, 512,000 weights, gave 5.93, 13.36, 19.94 and
  // 44.57 dB; both samples are good for +-0.05 dB. For 4 bits by hand: the range of 128 normal
  // numbers is 5.2 on average, a step is 0.35, noise is step^2 / 12 = 0.0101, or 19.9 dB.
  const Weights weights = normal_weights(512, 1024, 23);
  const std::vector<std::pair<int, double>> expected = {
      {2, 5.93}, {3, 13.36}, {4, 19.94}, {8, 44.57}};
  for (const auto& [bits, decibels] : expected) {
    const auto matrix = min_max(weights, 128, bits);
    ASSERT_TRUE(matrix.ok());
    EXPECT_NEAR(signal_to_noise(weights, matrix->view), decibels, 0.1) << bits;
  }
}

TEST(QuantizeMinMax, any_number_of_threads_gives_the_same_bytes) {
  const Weights weights = normal_weights(301, 96, 24);
  const auto one = min_max(weights, 32, 3, 1);
  const auto three = min_max(weights, 32, 3, 3);
  ASSERT_TRUE(one.ok() && three.ok());
  const auto same = [](std::span<const std::byte> a, std::span<const std::byte> b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
  };
  EXPECT_TRUE(same(one->view.codes, three->view.codes));
  EXPECT_TRUE(same(one->view.scales, three->view.scales));
  EXPECT_TRUE(same(one->view.zeros, three->view.zeros));
}

TEST(QuantizeMinMax, refuses_shapes) {
  const Weights weights = normal_weights(1, 100, 25);
  ThreadPool pool(1);
  const RowReader reader = reader_of(weights);
  struct Case {
    int64_t rows, cols, group_size;
  };
  for (const Case& c : std::vector<Case>{{1, 100, 32},
                                         {1, 100, 128},
                                         {1, 100, -1},
                                         {0, 100, 50},
                                         {1, 0, 50},
                                         {-1, 100, 50},
                                         {int64_t{1} << 40, int64_t{1} << 40, 32}}) {
    const auto matrix = quantize_min_max(c.rows, c.cols, c.group_size, 4, reader, pool);
    ASSERT_FALSE(matrix.ok()) << c.rows << " " << c.cols << " " << c.group_size;
    EXPECT_EQ(matrix.error().code, "quantize.shape");
  }
  const auto huge = quantize_min_max(int64_t{1} << 30, int64_t{1} << 27, 0, 4, reader, pool);
  ASSERT_FALSE(huge.ok());
  EXPECT_EQ(huge.error().code, "quantize.out_of_memory");
}

TEST(QuantizeMinMax, refuses_bits) {
  for (const int bits : {-1, 0, 1, 9, 16, 32}) {
    EXPECT_EQ(min_max(one_row({1, 2}), 2, bits).error().code, "quantize.bits");
    EXPECT_EQ(symmetric(one_row({1, 2}), 2, bits).error().code, "quantize.bits");
  }
}

TEST(QuantizeMinMax, names_the_first_weight_that_is_not_finite) {
  for (const float bad : {std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity(), std::nanf("")}) {
    Weights weights = normal_weights(2000, 64, 26);
    weights.at(1990, 0) = bad;
    weights.at(700, 33) = bad;
    weights.at(700, 40) = bad;
    const auto matrix = min_max(weights, 32, 4, 3);
    ASSERT_FALSE(matrix.ok());
    EXPECT_EQ(matrix.error().code, "quantize.not_finite");
    EXPECT_NE(matrix.error().message.find("row 700, column 33"), std::string::npos)
        << matrix.error().message;
  }
}

TEST(QuantizeMinMax, refuses_scales_beyond_f16) {
  // The scale 65520 is half a step above 65504 and rounds to infinity.
  EXPECT_TRUE(min_max(one_row({0, 65519.0f * 15}), 2, 4).ok());
  const auto matrix = min_max(one_row({1, 2, 0, 65520.0f * 15}), 2, 4);
  ASSERT_FALSE(matrix.ok());
  EXPECT_EQ(matrix.error().code, "quantize.scale_overflow");
  EXPECT_NE(matrix.error().message.find("row 0, columns 2 to 3"), std::string::npos)
      << matrix.error().message;
  const float max = std::numeric_limits<float>::max();
  EXPECT_EQ(min_max(one_row({max, -max}), 2, 4).error().code, "quantize.scale_overflow");
  EXPECT_EQ(symmetric(one_row({max, -max}), 2, 4).error().code, "quantize.scale_overflow");
}

TEST(QuantizeSymmetric, codes_are_offset_binary_without_zero_points) {
  // Scale 2 * 7.5 / 15 = 1. 7.5 rounds to 8, beyond the largest code, which stands for 7.
  const auto matrix = symmetric(one_row({-7.5f, 7.5f, 0, 1, -1, 2.5f, 3.5f, -6.75f}), 8, 4);
  ASSERT_TRUE(matrix.ok());
  EXPECT_EQ(to_string(matrix->view.format), "i4 g8 scale f16");
  EXPECT_TRUE(matrix->view.zeros.empty());
  EXPECT_EQ(scale_at(matrix->view, 0), 0x3C00);
  EXPECT_EQ(codes_of(matrix->view), (std::vector<uint32_t>{0, 15, 8, 9, 7, 10, 12, 1}));
  EXPECT_EQ(weight_at(matrix->view, 0, 0), -8);
  EXPECT_EQ(weight_at(matrix->view, 0, 1), 7);
}

TEST(QuantizeSymmetric, group_of_zeros_has_scale_one_and_stays_zero) {
  for (const int bits : {2, 3, 4, 8}) {
    const auto matrix = symmetric(one_row({0, -0.0f}), 2, bits);
    ASSERT_TRUE(matrix.ok());
    EXPECT_EQ(scale_at(matrix->view, 0), 0x3C00);
    EXPECT_EQ(weight_at(matrix->view, 0, 0), 0);
    EXPECT_EQ(weight_at(matrix->view, 0, 1), 0);
  }
}

TEST(QuantizeSymmetric, noise_on_normal_weights) {
  // A second implementation in another language gave 5.21, 12.49, 19.13 and 43.71 dB: 0.8 dB less
  // than min-max, whose range is not twice the largest weight.
  const Weights weights = normal_weights(512, 1024, 27);
  const std::vector<std::pair<int, double>> expected = {
      {2, 5.21}, {3, 12.49}, {4, 19.13}, {8, 43.71}};
  for (const auto& [bits, decibels] : expected) {
    const auto matrix = symmetric(weights, 128, bits);
    ASSERT_TRUE(matrix.ok());
    EXPECT_NEAR(signal_to_noise(weights, matrix->view), decibels, 0.1) << bits;
  }
}

TEST(QuantizeMinMax, zero_points_begin_at_1_for_who_cannot_store_0) {
  ThreadPool pool(1);
  const Weights weights = one_row({3, 0.5f, 1, 0, 2, 1.5f, 2.5f, 3, -1, 0.5f, 1, 0, 2, 1, 1, 2});
  for (const int bits : {2, 4, 8}) {
    const auto matrix = quantize_min_max(1, 16, 8, bits, reader_of(weights), pool, 1);
    ASSERT_TRUE(matrix.ok());
    const MatrixView& view = matrix->view;
    const int q_max = (1 << bits) - 1;
    EXPECT_EQ(std::to_integer<int>(view.zeros[0]), 1);
    // 0 to 3 in one step less, so that 3 is still reached.
    EXPECT_NEAR(weight_at(view, 0, 0), 3, 3 * 0x1p-11);
    for (int64_t k = 0; k < 8; ++k) {
      EXPECT_LE(std::fabs(weight_at(view, 0, k) - weights.at(0, k)), 1.51 / (q_max - 1));
    }
    const auto plain = quantize_min_max(1, 16, 8, bits, reader_of(weights), pool);
    ASSERT_TRUE(plain.ok());
    EXPECT_EQ(std::to_integer<int>(plain->view.zeros[0]), 0);
    for (int64_t k = 8; k < 16; ++k) {  // this group has a zero point of its own
      EXPECT_EQ(weight_at(view, 0, k), weight_at(plain->view, 0, k));
    }
  }
}

}  // namespace
}  // namespace subbyte
