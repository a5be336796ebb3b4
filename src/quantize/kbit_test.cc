#include "quantize/kbit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/thread_pool.h"
#include "gtest/gtest.h"
#include "matrix/codebook.h"
#include "matrix/dequantize.h"
#include "quantize/kbit_search.h"
#include "support/sanitized.h"
#include "support/weights.h"

namespace subbyte {
namespace {

/// Positive halves of the codebooks: medians of bins of equal probability of the normal
/// distribution, divided by the largest (SciPy's norm.ppf, to 6 digits).
const std::vector<std::vector<double>> kHalves = {
    {.276994, 1},
    {.102541, .318604, .578277, 1},
    {.042095, .127341, .215946, .310905, .416819, .542209, .707569, 1},
    {.018188, .054678, .091509, .128926, .167200, .206649, .247650, .290685,  //
     .336377, .385589, .439571, .500267, .570999, .658255, .778105, 1}};

/// Half of the widest gap of each codebook: between the last two entries.
double half_gap(int bits) {
  const std::vector<double>& half = kHalves[bits - 2];
  return std::max((1 - half[half.size() - 2]) / 2, half[0]);
}

Result<Matrix> kbit(const Weights& weights, int bits, KbitScales scales = {},
                    KbitRule rule = KbitRule::kStoredScale) {
  ThreadPool pool(2);
  return quantize_kbit(weights.rows, weights.cols, {bits, scales, rule, {}}, reader_of(weights),
                       pool);
}

Weights block(std::vector<float> values) {
  values.resize(32);
  return one_row(std::move(values));
}

/// Blocks whose largest magnitudes are spread evenly over the exponents of [least, most].
Weights blocks_in(double least, double most, int64_t rows, int64_t cols, uint64_t seed) {
  Random random(seed);
  Weights weights = {rows, cols, std::vector<float>(rows * cols)};
  for (int64_t first = 0; first < rows * cols; first += 32) {
    const double scale = least * std::exp2(random.uniform() * std::log2(most / least));
    for (int64_t i = 0; i < 32; ++i) {
      weights.values[first + i] = static_cast<float>(scale * (2 * random.uniform() - 1));
    }
    weights.values[first + random.below(32)] = static_cast<float>(scale);
  }
  return weights;
}

TEST(QuantizeKbit, block_by_hand) {
  // The largest is 2, a number of E4M4: 2^(12 - 11). Quotients -1, 0.9, 0.63, 0 and 0.07.
  const auto matrix = kbit(block({-2, 1.8f, 1.26f, 0, 0.14f}), 4);
  ASSERT_TRUE(matrix.ok()) << matrix.error().message;
  EXPECT_EQ(to_string(matrix->view.format), "nfl4 g32 scale e4m4");
  EXPECT_EQ(std::to_integer<int>(matrix->view.scales[0]), 12 << 4);
  EXPECT_EQ(matrix->view.tensor_scale, 1);
  // 0 lies in the middle of -0.042 and 0.042: the lower code, 7.
  const std::vector<uint32_t> codes = {0, 15, 14, 7, 8, 7};
  for (std::size_t k = 0; k < codes.size(); ++k) {
    EXPECT_EQ(code_at(matrix->view, 0, static_cast<int64_t>(k)), codes[k]) << k;
  }
  EXPECT_NEAR(weight_at(matrix->view, 0, 2), 2 * .707569, 2e-6);
}

TEST(QuantizeKbit, codes_are_nearest_to_the_quotient_by_the_stored_scale) {
  // 1.04 is stored as 1.0625. 0.88 is nearer to 1 than to 0.707569 by 1.04, not by 1.0625.
  const Weights weights = block({1.04f, 0.895f});
  const auto stored = kbit(weights, 4);
  const auto exact = kbit(weights, 4, {}, KbitRule::kBitsandbytes);
  ASSERT_TRUE(stored.ok() && exact.ok());
  EXPECT_EQ(std::to_integer<int>(stored->view.scales[0]), 11 << 4 | 1);
  EXPECT_EQ(code_at(stored->view, 0, 1), 14u);
  EXPECT_EQ(code_at(exact->view, 0, 1), 15u);
}

TEST(QuantizeKbit, zeros_have_scale_zero) {
  const auto matrix = kbit(block({}), 3);
  ASSERT_TRUE(matrix.ok());
  EXPECT_EQ(std::to_integer<int>(matrix->view.scales[0]), 0);
  EXPECT_EQ(weight_at(matrix->view, 0, 5), 0);
}

/// They had the codes of the row before, which another number of threads makes another one.
TEST(QuantizeKbit, codes_of_zeros_do_not_depend_on_the_row_before) {
  Weights weights = normal_weights(2, 32, 3);
  std::fill_n(weights.values.begin() + 32, 32, 0.0f);
  for (const KbitRule rule : {KbitRule::kStoredScale, KbitRule::kLeastError}) {
    const auto both = kbit(weights, 4, {}, rule);
    const auto alone = kbit(block({}), 4, {}, rule);
    ASSERT_TRUE(both.ok() && alone.ok());
    const auto second = both->view.codes.subspan(16, 16);
    EXPECT_TRUE(std::ranges::equal(second, alone->view.codes));
  }
}

/// By the loops of this machine and by the plain ones: what wins is the same to the bit.
TEST(KbitSearch, finds_the_same_errors_with_and_without_vectors) {
  Random random(9);
  for (int bits = 2; bits <= 5; ++bits) {
    const std::vector<float> values = default_codebook(kbit_element(bits));
    const CodebookEncoder encoder(values);
    const KbitSearch search(values, encoder);
    for (int round = 0; round < 500; ++round) {
      std::array<float, 32> weights;
      for (float& weight : weights) weight = static_cast<float>(random.normal());
      if (round % 7 == 0) weights.fill(round % 2 == 0 ? 0.0f : -1.5f);
      KbitSearch::Divisors divisors;
      for (float& divisor : divisors) {
        divisor = static_cast<float>(std::exp2(3 * random.uniform() - 1));
      }
      divisors[random.below(24)] = 0;
      const auto plain = search.plain_errors(weights, divisors);
      const auto found = search.errors(weights, divisors);
      const auto least = std::ranges::min_element(plain);
      for (std::size_t i = 0; i < plain.size(); ++i) {
        const bool is_left_out = std::isinf(found[i]) && plain[i] > *least;
        if (!is_left_out) {
          ASSERT_EQ(found[i], plain[i]) << bits << " bits, round " << round << ", scale " << i;
        }
      }
    }
  }
}

TEST(QuantizeKbit, encoder_of_bitsandbytes) {
  struct Case {
    double value;
    int code;
  };
  constexpr double kBelowEight = 8 - 0x1p-21;
  const Case cases[] = {
      {0, 0},
      {1, 0xB0},
      {1.0625, 0xB1},
      {1.97, 0xBF},  // does not carry
      {1.99, 0xBF},
      {31, 0xFF},
      {32, 0xF0},
      {40, 0xF4},  // is cut, not saturated
      {64, 0xF0},
      {0x1p-10, 16},
      {0x1p-11, 8},
      {0x1p-14, 1},  // subnormal
      {2.9e-5, 0},
      {3.2e-5, 1},
      {0x1.fp-11, 15},
      {-1, 0},  //
      {1.03125, 0xB0},
      {1.09375, 0xB2},      // ties to even
      {kBelowEight, 0xE0},  // its log2f is 3
  };
  for (const auto& [value, code] : cases) {
    EXPECT_EQ(encode_e4m4_as_bitsandbytes(static_cast<float>(value)), code) << value;
  }
  EXPECT_EQ(info(Format::kE4M4).encode(1.99, Rounding::kNearestEven), 0xC0u);
  EXPECT_EQ(info(Format::kE4M4).encode(40, Rounding::kNearestEven), 0xFFu);
}

/// Of ten million weights; with sanitizers of a tenth.
TEST(QuantizeKbit, error_bound_of_each_block) {
  struct Scale {
    Format format;
    double error;
  };
  const int64_t rows = testing::kSanitized ? 82 : 815;
  std::vector<double> row(1024);
  for (int bits = 2; bits <= 5; ++bits) {
    const Weights weights = blocks_in(0x1p-10, 31, rows, std::ssize(row), bits);
    for (const auto& [format, error] :
         {Scale{Format::kE4M4, 1.0 / 32}, {Format::kF16, 0x1p-11}, {Format::kF32, 0}}) {
      const auto matrix = kbit(weights, bits, {format, 1});
      ASSERT_TRUE(matrix.ok());
      const Dequantizer dequantizer(matrix->view);
      for (int64_t n = 0; n < weights.rows; ++n) {
        dequantizer.row(n, row.data());
        for (int64_t first = 0; first < weights.cols; first += 32) {
          double largest = 0;
          double worst = 0;
          for (int64_t k = first; k < first + 32; ++k) {
            largest = std::max(largest, std::fabs(double{weights.at(n, k)}));
            worst = std::max(worst, std::fabs(weights.at(n, k) - row[static_cast<std::size_t>(k)]));
          }
          ASSERT_LE(worst, (half_gap(bits) + error + 1e-6) * largest) << bits << " bits, row " << n;
        }
      }
    }
  }
}

/// Two-sided: the bounds are 0.1 dB below and 0.2 above what a simulation in double precision says
/// (7.4, 15.0, 21.2, 26.3).
TEST(QuantizeKbit, signal_to_noise_of_normal_weights) {
  constexpr double kLeast[] = {7.3, 14.9, 21.0, 26.0};
  const Weights weights = normal_weights(256, 2048, 7);
  for (int bits = 2; bits <= 5; ++bits) {
    const auto exact = kbit(weights, bits, {Format::kF32, 1});
    const auto rounded = kbit(weights, bits);
    const auto upstream = kbit(weights, bits, {}, KbitRule::kBitsandbytes);
    ASSERT_TRUE(exact.ok() && rounded.ok() && upstream.ok());
    const double db = signal_to_noise(weights, exact->view);
    EXPECT_GE(db, kLeast[bits - 2]);
    EXPECT_LE(db, kLeast[bits - 2] + 0.5);
    const double e4m4 = signal_to_noise(weights, rounded->view);
    EXPECT_NEAR(e4m4, db, 1.5);
    // With 2 bits its encoder, which does not carry, happens to choose better scales.
    if (bits > 2) {
      EXPECT_GT(e4m4, signal_to_noise(weights, upstream->view)) << "codes by the stored scale";
    }
  }
}

/// By a simulation in numpy: 9.8, 15.9, 22.1 and 28.2 dB.
TEST(QuantizeKbit, least_error_of_normal_weights) {
  constexpr double kDb[] = {9.8, 15.9, 22.1, 28.2};
  const Weights weights = normal_weights(128, 1024, 8);
  for (int bits = 2; bits <= 5; ++bits) {
    for (const Format format : {Format::kE4M4, Format::kF16, Format::kF32}) {
      const auto matrix = kbit(weights, bits, {format, 1}, KbitRule::kLeastError);
      ASSERT_TRUE(matrix.ok());
      EXPECT_NEAR(signal_to_noise(weights, matrix->view), kDb[bits - 2], 0.25) << bits;
    }
  }
}

/// No block is worse than with its largest magnitude, nor than with any scale of E4M4 near it; each
/// code is the nearest.
TEST(QuantizeKbit, least_error_is_the_least_of_all_scales_near) {
  const FormatInfo& e4m4 = info(Format::kE4M4);
  const Weights weights = blocks_in(0x1p-9, 20, 6, 256, 5);
  for (int bits = 2; bits <= 5; ++bits) {
    const std::vector<float> values = default_codebook(kbit_element(bits));
    const auto matrix = kbit(weights, bits, {}, KbitRule::kLeastError);
    ASSERT_TRUE(matrix.ok());
    for (int64_t block = 0; block < 48; ++block) {
      const auto error = [&](double scale) {
        double sum = 0;
        for (int64_t i = 0; i < 32; ++i) {
          double least = std::numeric_limits<double>::infinity();
          for (const float value : values) {
            least = std::min(least, std::fabs(weights.values[32 * block + i] - value * scale));
          }
          sum += least * least;
        }
        return sum;
      };
      double largest = 0;
      double found = 0;
      for (int64_t i = 32 * block; i < 32 * block + 32; ++i) {
        const double difference = weights.values[i] - weight_at(matrix->view, i / 256, i % 256);
        found += difference * difference;
        largest = std::max(largest, std::fabs(double{weights.values[i]}));
      }
      const auto usual = static_cast<int>(e4m4.encode(largest, Rounding::kNearestEven));
      double least = std::numeric_limits<double>::infinity();
      for (int code = usual - 14; code <= std::min(usual + 6, 255); ++code) {
        least = std::min(least, error(e4m4.decode(static_cast<uint32_t>(code))));
      }
      EXPECT_NEAR(found, least, 1e-5 * least) << bits << " " << block;
    }
  }
}

TEST(QuantizeKbit, least_error_of_what_is_too_small_for_the_usual_scale) {
  const auto usual = kbit(block({0x1p-16f}), 4);
  const auto least = kbit(block({0x1p-16f}), 4, {}, KbitRule::kLeastError);
  ASSERT_TRUE(usual.ok() && least.ok());
  EXPECT_EQ(weight_at(usual->view, 0, 0), 0);
  EXPECT_NEAR(weight_at(least->view, 0, 0), 0x1p-16, 0x1p-18);
  EXPECT_EQ(kbit(block({1e6f}), 4, {Format::kF16, 1}, KbitRule::kLeastError).error().code,
            "quantize.scale_overflow");
}

TEST(QuantizeKbit, a_power_of_two_brings_small_weights_into_range) {
  const Weights small = blocks_in(0x1p-24, 0x1p-12, 4, 256, 3);
  // The least block is 2^-24 or a little more.
  const auto matrix = kbit(small, 4, {Format::kE4M4, 0x1p-14});
  const Weights usual = blocks_in(0x1p-10, 0x1p2, 4, 256, 3);  // the same, 2^14 times
  const auto expected = kbit(usual, 4);
  ASSERT_TRUE(matrix.ok() && expected.ok());
  for (int64_t k = 0; k < 256; ++k) {
    EXPECT_EQ(weight_at(matrix->view, 1, k), 0x1p-14 * weight_at(expected->view, 1, k));
  }
}

TEST(QuantizeKbit, factor_of_the_largest_leaves_small_blocks_what_subnormal_scales_have) {
  for (const auto& [largest, factor] : {std::pair(0.0, 1.0),
                                        {31, 1},
                                        {31.01, 2},
                                        {31.5, 2},
                                        {63, 4},
                                        {16, 1},
                                        {15.5, 0.5},
                                        {0.1, 0x1p-8},
                                        {0x1p-140, 0x1p-144}}) {
    EXPECT_EQ(kbit_factor(largest), factor) << largest;
  }
  std::vector<float> values(64);
  values[0] = 0.75f;
  for (int power = 10; power < 24; ++power) {
    values[32] = std::ldexp(0.7f, -power);
    const auto matrix = kbit(one_row(values), 4, {Format::kE4M4, kbit_factor(0.75)});
    ASSERT_TRUE(matrix.ok());
    EXPECT_EQ(weight_at(matrix->view, 0, 0), 0.75);
    EXPECT_NEAR(weight_at(matrix->view, 0, 32), values[32], values[32] / 32 + 0x1p-18 * 0.75);
  }
}

TEST(QuantizeKbit, counts_blocks_whose_scales_would_be_subnormal) {
  Weights weights = {4, 64, std::vector<float>(256)};
  weights.at(0, 3) = -24;  // 2^4 and more: the factor is 1
  weights.at(0, 40) = 0x1p-10f;
  weights.at(1, 0) = 0x1.ffp-11f;
  weights.at(1, 33) = 0x1p-149f;
  weights.at(2, 0) = std::nanf("");
  ThreadPool pool(2);
  const KbitBlocks blocks = count_kbit_blocks(4, 64, reader_of(weights), pool);
  EXPECT_EQ(blocks.largest, 24);
  EXPECT_EQ(blocks.count(), 4);
  EXPECT_EQ(blocks.count_subnormal(), 2);
  KbitBlocks sum = blocks;
  sum += blocks;
  EXPECT_EQ(sum.count_subnormal(), 4);
  EXPECT_EQ(KbitBlocks().count_subnormal(), 0);
}

/// Of more than f16 holds, too, the largest blocks keep their precision.
TEST(QuantizeKbit, f16_scales_have_a_factor_where_blocks_pass_their_range) {
  std::vector<float> values(64);
  values[0] = 0x1p40f;
  values[32] = 0x1p-14f;
  const auto matrix = kbit(one_row(values), 2, {Format::kF16, 0x1p25});
  ASSERT_TRUE(matrix.ok());
  EXPECT_EQ(weight_at(matrix->view, 0, 0), 0x1p40);
}

TEST(QuantizeKbit, codebook_of_the_caller_goes_with_the_matrix) {
  std::vector<float> values = {-0.5f, 0, 0.25f, 1};
  ThreadPool pool(2);
  const Weights weights = block({2, -2, 0.2f, 0.3f, 1.25f});
  const auto matrix =
      quantize_kbit(1, 32, {2, {}, KbitRule::kStoredScale, values}, reader_of(weights), pool);
  ASSERT_TRUE(matrix.ok());
  values.assign(4, 0);
  const std::vector<double> expected = {2, -1, 0, 0.5, 0.5, 0};  // of the middle 1.25 the lower
  for (std::size_t k = 0; k < expected.size(); ++k) {
    EXPECT_EQ(weight_at(matrix->view, 0, static_cast<int64_t>(k)), expected[k]) << k;
  }
  EXPECT_EQ(quantize_kbit(1, 32, {2, {}, KbitRule::kStoredScale, values}, reader_of(weights), pool)
                .error()
                .code,
            "quantize.codebook");
}

TEST(QuantizeKbit, refuses) {
  EXPECT_EQ(kbit(block({1}), 6).error().code, "quantize.bits");
  EXPECT_EQ(kbit(block({1}), 1).error().code, "quantize.bits");
  EXPECT_EQ(kbit(block({1}), 4, {Format::kE8M0, 1}).error().code, "quantize.scale_format");
  EXPECT_EQ(kbit(one_row(std::vector<float>(33)), 4).error().code, "quantize.shape");
  EXPECT_EQ(kbit(block({std::nanf("")}), 4).error().code, "quantize.not_finite");
  EXPECT_EQ(kbit(block({1e6f}), 4, {Format::kF16, 1}).error().code, "quantize.scale_overflow");
}

}  // namespace
}  // namespace subbyte
