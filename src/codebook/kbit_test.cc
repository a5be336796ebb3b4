// Against products and codes computed here; tests/goldens/kbit_test.cc has what bitsandbytes gives.

#include "codebook/kbit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/float16.h"
#include "base/random.h"
#include "base/thread_pool.h"

namespace subbyte::codebook {
namespace {

const std::vector<float> kValues = {-1, -0.25f, 0, 0.5f};

std::span<const std::byte> bytes_of(const auto& numbers) {
  return std::as_bytes(std::span(numbers));
}

/// Codes at random, and what they stand for, by the definition of planes and tiles.
struct RandomWeights {
  std::vector<uint32_t> flat;
  std::vector<uint32_t> tiled;
  std::vector<uint16_t> absmax;  // F16
  std::vector<uint16_t> absmax_tiled;
  std::vector<double> weights;  // [experts * n][k_dim]

  RandomWeights(int64_t experts, int64_t n, int64_t k_dim, uint64_t seed) {
    Random random(seed);
    const int64_t blocks = k_dim / 32;
    const int64_t tiled_blocks = (k_dim + 63) / 64 * 2;
    tiled.resize(experts * n * tiled_blocks * 2);
    absmax_tiled.resize(experts * n * tiled_blocks);
    for (int64_t row = 0; row < experts * n; ++row) {
      for (int64_t block = 0; block < blocks; ++block) {
        const uint32_t low = static_cast<uint32_t>(random.next());
        const uint32_t high = static_cast<uint32_t>(random.next());
        const int power = static_cast<int>(random.below(4));
        const auto scale = static_cast<uint16_t>((13 + power) << 10);  // 2^(power - 2)
        flat.insert(flat.end(), {low, high});
        absmax.push_back(scale);
        const int64_t in_expert = row % n;
        const int64_t place =
            row / n * n * tiled_blocks +
            ((block / 2 * (n / 128) + in_expert / 128) * 128 + in_expert % 128) * 2 + block % 2;
        tiled[place * 2] = low;
        tiled[place * 2 + 1] = high;
        absmax_tiled[place] = scale;
        for (int i = 0; i < 32; ++i) {
          const uint32_t code = (low >> i & 1) | (high >> i & 1) << 1;
          weights.push_back(std::ldexp(kValues[code], power - 2));
        }
      }
    }
  }
};

std::vector<uint16_t> random_bf16(int64_t count, uint64_t seed) {
  Random random(seed);
  std::vector<uint16_t> numbers;
  for (int64_t i = 0; i < count; ++i) {
    numbers.push_back(to_bfloat16(static_cast<float>(random.normal())).bits);
  }
  return numbers;
}

TEST(BitsandbytesKbit, grouped_products_are_those_of_each_expert) {
  constexpr int64_t kExperts = 3, kN = 128, kK = 96;
  const RandomWeights weights(kExperts, kN, kK, 1);
  const std::vector<int32_t> offsets = {0, 2, 2, 7};  // the second has no rows
  const std::vector<uint16_t> x = random_bf16(7 * kK, 2);
  std::vector<uint16_t> out(7 * kN);
  ThreadPool pool(2);
  const KbitCodes codes = {weights.tiled, bytes_of(weights.absmax_tiled), kValues, 2, Format::kF16};
  const Status status = kbit_grouped_gemm(
      {bytes_of(x), std::as_writable_bytes(std::span(out)), Format::kBF16, kK, kN}, codes, offsets,
      pool);
  ASSERT_TRUE(status.ok()) << status.error().message;
  for (int64_t m = 0; m < 7; ++m) {
    const int64_t expert = m < 2 ? 0 : 2;
    for (int64_t n = 0; n < kN; ++n) {
      double sum = 0;
      double magnitude = 0;
      for (int64_t k = 0; k < kK; ++k) {
        const double term =
            weights.weights[((expert * kN) + n) * kK + k] * to_float(BFloat16{x[m * kK + k]});
        sum += term;
        magnitude += std::fabs(term);
      }
      EXPECT_NEAR(to_float(BFloat16{out[m * kN + n]}), sum,
                  0x1p-8 * std::fabs(sum) + 0x1p-15 * magnitude);
    }
  }
}

TEST(BitsandbytesKbit, last_block_is_filled_with_zeros) {
  std::vector<float> a(40, 1);
  std::vector<uint32_t> packed(kbit_packed_words(40, 2), 7);
  std::vector<uint8_t> absmax(kbit_absmax_elements(40), 7);
  ThreadPool pool(1);
  ASSERT_EQ(packed.size(), 6u);
  ASSERT_TRUE(quantize_kbit(bytes_of(a), Format::kF32, kValues, 2, packed, absmax, pool).ok());
  EXPECT_EQ(packed, (std::vector<uint32_t>{~0u, ~0u, 0xFF, ~0u, 0, 0}));  // 1: code 3, 0: code 2
  EXPECT_EQ(absmax, (std::vector<uint8_t>{0xB0, 0xB0, 0}));
  std::vector<float> back(64);
  const KbitCodes codes = {packed, bytes_of(absmax), kValues, 2, Format::kE4M4};
  ASSERT_TRUE(
      dequantize_kbit(codes, 40, Format::kF32, std::as_writable_bytes(std::span(back)), pool).ok());
  for (int i = 0; i < 64; ++i) EXPECT_EQ(back[i], i < 40 ? 0.5f : 0.0f);
}

TEST(BitsandbytesKbit, scales_in_f32_are_rounded_to_e4m4_first) {
  const std::vector<uint32_t> packed = {~0u, ~0u};
  const std::vector<float> absmax = {1.99f};
  std::vector<float> out(32);
  ThreadPool pool(1);
  const KbitCodes codes = {packed, bytes_of(absmax), kValues, 2, Format::kF32};
  ASSERT_TRUE(
      dequantize_kbit(codes, 32, Format::kF32, std::as_writable_bytes(std::span(out)), pool).ok());
  EXPECT_EQ(out[0], 0.5f * 1.9375f);
}

TEST(BitsandbytesKbit, refuses) {
  ThreadPool pool(1);
  const RandomWeights weights(1, 128, 64, 3);
  const std::vector<uint16_t> x = random_bf16(5 * 64, 4);
  std::vector<uint16_t> out(5 * 128);
  const KbitCodes flat = {weights.flat, bytes_of(weights.absmax), kValues, 2, Format::kF16};
  const KbitProduct product = {bytes_of(x), std::as_writable_bytes(std::span(out)), Format::kBF16,
                               64, 128};
  const auto gemv = [&](const KbitProduct& p, const KbitCodes& codes) {
    const Status status = kbit_scalar_gemv(p, codes, pool);
    return status.ok() ? "" : std::string(status.error().code);
  };
  KbitProduct one = product;
  one.a = product.a.first(64 * 2);
  EXPECT_EQ(gemv(one, flat), "");
  EXPECT_EQ(gemv(product, flat), "kbit.rows");
  KbitProduct wrong = one;
  wrong.dtype = Format::kF32;
  EXPECT_EQ(gemv(wrong, flat), "kbit.dtype");
  wrong = one;
  wrong.a = product.a.first(100);
  EXPECT_EQ(gemv(wrong, flat), "kbit.buffer");
  wrong = one;
  wrong.out = product.out.first(100);
  EXPECT_EQ(gemv(wrong, flat), "kbit.buffer");
  KbitCodes codes = flat;
  codes.packed = codes.packed.first(100);
  EXPECT_EQ(gemv(one, codes), "kbit.buffer");
  codes = flat;
  codes.absmax = codes.absmax.first(100);
  EXPECT_EQ(gemv(one, codes), "kbit.buffer");
  codes = flat;
  codes.absmax_dtype = Format::kE4M3;
  EXPECT_EQ(gemv(one, codes), "kbit.dtype");
  const std::vector<float> unordered = {0, 1, 1, 2};
  codes = flat;
  codes.codebook = unordered;
  EXPECT_EQ(gemv(one, codes), "kbit.codebook");
  KbitProduct narrow = one;
  narrow.k_dim = 16;
  EXPECT_EQ(gemv(narrow, flat), "layout.shape");
}

TEST(BitsandbytesKbit, refuses_offsets_that_do_not_divide_the_rows) {
  ThreadPool pool(1);
  const RandomWeights weights(1, 128, 64, 3);
  const std::vector<uint16_t> x = random_bf16(5 * 64, 4);
  std::vector<uint16_t> out(5 * 128);
  const KbitProduct product = {bytes_of(x), std::as_writable_bytes(std::span(out)), Format::kBF16,
                               64, 128};
  const auto grouped = [&](std::vector<int32_t> offsets) {
    const KbitCodes tiled = {weights.tiled, bytes_of(weights.absmax_tiled), kValues, 2,
                             Format::kF16};
    const Status status = kbit_grouped_gemm(product, tiled, offsets, pool);
    return status.ok() ? "" : std::string(status.error().code);
  };
  EXPECT_EQ(grouped({0, 5}), "");
  EXPECT_EQ(grouped({0, 4}), "kbit.offsets");
  EXPECT_EQ(grouped({0, 6, 5}), "kbit.offsets");
  EXPECT_EQ(grouped({}), "kbit.offsets");
  EXPECT_EQ(grouped({0, 2, 5}), "kbit.buffer");  // weights of one expert
}

TEST(BitsandbytesKbit, quantize_refuses) {
  ThreadPool pool(1);
  std::vector<float> a(32, std::numeric_limits<float>::quiet_NaN());
  std::vector<uint32_t> packed(4);
  std::vector<uint8_t> absmax(2);
  const auto quantized = [&](int k) {
    return quantize_kbit(bytes_of(a), Format::kF32, kValues, k, packed, absmax, pool).error().code;
  };
  EXPECT_EQ(quantized(2), "quantize.not_finite");
  a.assign(32, 1);
  EXPECT_EQ(quantized(1), "quantize.bits");
  EXPECT_EQ(quantized(3), "kbit.buffer");
  packed.resize(6);
  EXPECT_EQ(quantized(3), "quantize.codebook");
}

}  // namespace
}  // namespace subbyte::codebook
