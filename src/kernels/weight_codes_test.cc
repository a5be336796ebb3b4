#include "kernels/weight_codes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "base/thread_pool.h"
#include "matrix/codebook.h"
#include "quantize/codebook_encoder.h"
#include "quantize/fp8.h"
#include "quantize/kbit.h"
#include "quantize/mxfp4.h"
#include "quantize/nf4.h"
#include "quantize/nvfp4.h"
#include "quantize/round_to_nearest.h"

namespace subbyte {
namespace {

constexpr int64_t kRows = 96;
constexpr int64_t kCols = 256;

/// Numbers of 32-bit floats of all sizes that a scale may have, zeros of both signs, groups of
/// nothing else, subnormal numbers, and small multiples of a power of two, which meet ties.
std::vector<float> some_weights(uint64_t seed) {
  Random random(seed);
  std::vector<float> weights(kRows * kCols);
  for (int64_t i = 0; i < kRows * kCols; ++i) {
    const int64_t kind = i / 32 % 16;
    double weight = random.normal();
    if (kind == 3) weight = random.below(2) == 0 ? 0.0 : -0.0;
    if (kind == 5) weight = std::ldexp(weight, -140);
    if (kind == 7) weight = static_cast<double>(random.below(49)) - 24;
    if (kind == 9) weight = std::ldexp(weight, static_cast<int>(random.below(40)) - 30);
    if (kind == 11 && i % 4 != 0) weight = i % 2 == 0 ? 0.0 : -0.0;
    if (kind == 13) weight = std::fabs(weight);
    weights[i] = static_cast<float>(weight);
  }
  return weights;
}

struct Given {
  std::vector<float> weights;
  ThreadPool pool{2};

  RowReader reader() const {
    return
        [this](int64_t row, float* out) { std::copy_n(weights.begin() + row * kCols, kCols, out); };
  }
  float largest() const {
    float largest = 0;
    for (const float weight : weights) largest = std::max(largest, std::fabs(weight));
    return largest;
  }
};

uint32_t stored(std::span<const std::byte> bytes, int64_t i, int width) {
  uint32_t value = 0;
  if (width > 0) std::memcpy(&value, bytes.data() + i * width, width);
  return value;
}

/// The group that a GPU finds, one weight after the other.
template <class Rule>
weights::Group group_of(const Rule& rule, std::span<const float> weights, double factor) {
  weights::Range range;
  for (const float weight : weights) {
    range.low = std::min(range.low, weight);
    range.high = std::max(range.high, weight);
  }
  weights::Group group = rule.group(range, factor);
  if constexpr (Rule::kSearches) {
    const weights::Group other = rule.other(group, range, factor);
    double errors[2] = {};
    for (const float weight : weights) {
      errors[0] = rule.add_error(errors[0], group, weight);
      errors[1] = rule.add_error(errors[1], other, weight);
    }
    if (group.step != 0 && rule.is_better(other, errors[1], group, errors[0])) group = other;
  }
  return group;
}

template <class Rule>
void expect_same(const Rule& rule, const Given& given, const Result<Matrix>& made,
                 double factor = 1) {
  ASSERT_TRUE(made.ok()) << made.error().message;
  const MatrixView& view = made->view;
  const int64_t size = view.group_size();
  const int scale_bytes = info(view.format.scale).bits / 8;
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t g = 0; g < view.groups(); ++g) {
      const auto part = std::span(given.weights).subspan(row * kCols + g * size, size);
      const weights::Group group = group_of(rule, part, factor);
      ASSERT_FALSE(rule.overflows(group));
      const int64_t at = row * view.groups() + g;
      ASSERT_EQ(group.scale, stored(view.scales, at, scale_bytes)) << row << ' ' << g;
      const int zero = zero_bytes(view.format.zero);
      if (zero > 0) {
        ASSERT_EQ(group.zero, stored(view.zeros, at, zero)) << row << ' ' << g;
      }
      for (int64_t i = 0; i < size; ++i) {
        ASSERT_EQ(rule.code(group, part[i]), code_at(view, row, g * size + i))
            << row << ' ' << g << ' ' << i << ' ' << part[i];
      }
    }
  }
}

TEST(WeightCodes, integers_are_those_of_round_to_nearest) {
  for (const int64_t group : {0, 16, 64}) {
    for (int bits = 2; bits <= 8; ++bits) {
      Given given{some_weights(bits)};
      const int q_max = (1 << bits) - 1;
      expect_same(weights::Integers<false>{q_max}, given,
                  quantize_min_max(kRows, kCols, group, bits, given.reader(), given.pool));
      expect_same(weights::Integers<true>{q_max}, given,
                  quantize_symmetric(kRows, kCols, group, bits, given.reader(), given.pool));
    }
  }
}

TEST(WeightCodes, scales_beyond_f16_are_seen) {
  const weights::Integers<false> rule{15};
  EXPECT_TRUE(rule.overflows(rule.group({0, 65520 * 15.0f}, 1)));
  EXPECT_FALSE(rule.overflows(rule.group({0, 65519 * 15.0f}, 1)));
}

TEST(WeightCodes, mxfp4_has_every_rule_and_the_search) {
  Given given{some_weights(1)};
  for (const ScaleRule rule : {ScaleRule::kFloor, ScaleRule::kCeil, ScaleRule::kBump175}) {
    const uint32_t threshold = blocks::scale_threshold<blocks::E2M1>(static_cast<int>(rule));
    expect_same(
        weights::Mxfp4<false>{{}, threshold}, given,
        quantize_mxfp4(kRows, kCols, rule, Rounding::kNearestEven, given.reader(), given.pool));
  }
  const uint32_t ceil = blocks::scale_threshold<blocks::E2M1>(static_cast<int>(ScaleRule::kCeil));
  expect_same(weights::Mxfp4<true>{{}, ceil}, given,
              quantize_mxfp4(kRows, kCols, given.reader(), given.pool));
}

TEST(WeightCodes, nvfp4_has_a_factor_and_the_search) {
  for (const float power : {1.0f, 0x1p-120f, 0x1p100f}) {
    Given given{some_weights(2)};
    for (float& weight : given.weights) weight *= power;
    const auto plain =
        quantize_nvfp4(kRows, kCols, {.four_over_six = false}, given.reader(), given.pool);
    const double factor = weights::Nvfp4<false>::factor(given.largest());
    EXPECT_EQ(factor, plain->view.tensor_scale);
    expect_same(weights::Nvfp4<false>{}, given, plain, factor);
    const auto searched = quantize_nvfp4(kRows, kCols, {}, given.reader(), given.pool);
    const double with_search = weights::Nvfp4<true>::factor(given.largest());
    EXPECT_EQ(with_search, searched->view.tensor_scale);
    expect_same(weights::Nvfp4<true>{}, given, searched, with_search);
  }
  EXPECT_EQ(weights::Nvfp4<true>::factor(0), 1);
}

TEST(WeightCodes, codebooks_are_those_of_nf4_and_nfl) {
  Given given{some_weights(3)};
  weights::Nf4 nf4;
  for (uint32_t i = 0; i < 15; ++i) {
    nf4.bounds[i] = (info(Format::kNF4).decode(i) + info(Format::kNF4).decode(i + 1)) / 2;
  }
  for (const int64_t block : {0, 32, 64}) {
    expect_same(nf4, given, quantize_nf4(kRows, kCols, block, given.reader(), given.pool));
  }
  for (const float power : {1.0f, 0x1p-126f, 0x1p100f}) {
    for (int bits = 2; bits <= 5; ++bits) {
      Given scaled{some_weights(4)};
      for (float& weight : scaled.weights) weight *= power;
      const std::vector<float> values = default_codebook(kbit_element(bits));
      const CodebookEncoder encoder(values);
      weights::Nfl nfl = {static_cast<int>(encoder.thresholds().size()), {}};
      std::ranges::copy(encoder.thresholds(), nfl.thresholds);
      KbitOptions options;
      options.bits = bits;
      options.scales.factor = kbit_factor(scaled.largest());
      EXPECT_EQ(weights::Nfl::factor(scaled.largest()), options.scales.factor);
      expect_same(nfl, scaled, quantize_kbit(kRows, kCols, options, scaled.reader(), scaled.pool),
                  options.scales.factor);
    }
  }
  for (const float largest : {31.0f, std::nextafter(31.0f, 32.0f), 0x1p-149f, 3e38f, 0.0f}) {
    EXPECT_EQ(weights::Nfl::factor(largest), kbit_factor(largest)) << largest;
  }
}

TEST(WeightCodes, blocks_are_those_of_fp8) {
  Given given{some_weights(5)};
  const auto made = quantize_fp8(kRows, kCols, given.reader(), given.pool);
  ASSERT_TRUE(made.ok());
  for (int64_t g = 0; g < kCols / kFp8Block; ++g) {
    float largest = 0;
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t i = 0; i < kFp8Block; ++i) {
        largest = std::max(largest, std::fabs(given.weights[row * kCols + g * kFp8Block + i]));
      }
    }
    const float factor = weights::Fp8::factor_of(largest);
    for (int64_t row = 0; row < kRows; ++row) {
      ASSERT_EQ(blocks::as_bits(factor), stored(made->view.scales, row * 2 + g, 4));
      for (int64_t i = g * kFp8Block; i < (g + 1) * kFp8Block; ++i) {
        ASSERT_EQ(weights::Fp8::code(factor, 1 / double{factor}, given.weights[row * kCols + i]),
                  code_at(made->view, row, i));
      }
    }
  }
}

TEST(WeightCodes, divides_as_a_division_does) {
  Random random(11);
  for (int i = 0; i < 2'000'000; ++i) {
    const auto a = static_cast<float>(std::ldexp(random.normal(), i % 200 - 100));
    // Also divisors just below and above powers of two, and short ones.
    // Also divisors beside powers of two, short ones, and such as have all bits.
    const double b = i % 3 == 0   ? std::ldexp(1 + (random.uniform() - 0.5) * 0x1p-50, i % 7)
                     : i % 3 == 1 ? static_cast<double>(random.below(2048) + 1)
                                  : 1 + random.uniform();
    ASSERT_EQ(weights::divide(a, b, 1 / b), a / b) << a << ' ' << b;
  }
}

/// Every number of the format, the middles between neighbours and what lies beside these.
template <int kMantissa, int kBias>
void expect_codec(Format format, uint32_t most) {
  const FormatInfo& codec = info(format);
  for (uint32_t code = 0; code < most; ++code) {
    const double value = codec.decode(code);
    ASSERT_EQ((weights::decode<kMantissa, kBias>(code)), value);
    const double middle = (value + codec.decode(code + 1)) / 2;
    for (const double x : {value, middle, std::nextafter(middle, 0.0), std::nextafter(middle, 1e9),
                           std::nextafter(value, 1e9)}) {
      ASSERT_EQ((weights::encode<kMantissa, kBias>(x, most)),
                codec.encode(x, Rounding::kNearestEven))
          << x;
    }
  }
}

TEST(WeightCodes, small_floats_are_those_of_the_codec) {
  expect_codec<1, 1>(Format::kE2M1, 7);
  expect_codec<3, 7>(Format::kE4M3, 0x7E);
  expect_codec<4, 11>(Format::kE4M4, 0xFF);
  expect_codec<10, 15>(Format::kF16, 0x7BFF);
  EXPECT_EQ(weights::e2m1_of(1e300), 7u);
  EXPECT_EQ(weights::e4m3_of(1e300), 0x7Eu);
}

}  // namespace
}  // namespace subbyte
