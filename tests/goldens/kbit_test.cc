// What bitsandbytes' own functions give (branch archive/kbit-gemv-v8, bb999f9f; tests/data/kbit),
// against the operators of src/codebook: codes, scales, tiles and numbers to the bit, products
// within what its rounding and ours may differ. It lies in this layer because the file is
// safetensors.
//
//   NxK.T.w, .absmax, .k.packed, .absmax_tiled, .k.packed_tiled    N, K the shape, T the type; of
//   NxK.T.k.dequantized, 128x64.f16.x, .k.y                        bf16 and f32 the first 32 rows

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/thread_pool.h"
#include "checkpoints/import_parts.h"
#include "codebook/kbit.h"
#include "quantize/kbit.h"
#include "support/tensors_of_file.h"

namespace subbyte::codebook {
namespace {

struct Number {
  const char* name;
  Format format;
  int64_t rows;  // that are in the file
};
constexpr Number kNumbers[] = {
    {"f16", Format::kF16, 128}, {"bf16", Format::kBF16, 32}, {"f32", Format::kF32, 32}};

class KbitGolden : public TensorsOfFile {
 protected:
  KbitGolden() : TensorsOfFile("kbit/upstream.safetensors") {}

  /// Tensors of one shape, type and k.
  std::vector<uint32_t> packed(const std::string& name) const { return numbers<uint32_t>(name); }
  std::vector<float> codebook(int k) const {
    return numbers<float>("codebook." + std::to_string(k));
  }
  KbitCodes codes(const std::vector<uint32_t>& packed, const std::string& absmax,
                  const std::vector<float>& codebook, int k) const {
    return {packed, bytes(absmax), codebook, k, Format::kE4M4};
  }

  ThreadPool pool_{2};
};

TEST_F(KbitGolden, encoder_of_e4m4) {
  const auto x = numbers<float>("e4m4.x");
  const auto expected = numbers<uint8_t>("e4m4.encoded");
  ASSERT_EQ(x.size(), 1559u);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(encode_e4m4_as_bitsandbytes(x[i]), expected[i]) << x[i];
  }
}

/// Ours are the exact quotients, its are two f32 quantiles divided.
TEST_F(KbitGolden, codebooks_differ_in_the_last_place_at_most) {
  for (int k = 2; k <= 5; ++k) {
    const std::vector<float> upstream = codebook(k);
    for (uint32_t code = 0; code < upstream.size(); ++code) {
      const auto value = static_cast<float>(info(kbit_element(k)).decode(code));
      EXPECT_LE(std::fabs(value - upstream[code]), std::ldexp(1.0f, std::ilogb(value) - 23));
    }
  }
}

TEST_F(KbitGolden, quantizes_to_the_same_planes_and_scales) {
  for (const Number& number : kNumbers) {
    const std::string name = std::string("128x64.") + number.name;
    const std::vector<uint8_t> absmax = numbers<uint8_t>(name + ".absmax");
    for (int k = 2; k <= 5; ++k) {
      const std::vector<uint32_t> expected = packed(name + "." + std::to_string(k) + ".packed");
      // By its own values of the codes, and by ours, which choose the same codes.
      std::vector<float> ours;
      for (uint32_t code = 0; code < 1u << k; ++code) {
        ours.push_back(static_cast<float>(info(kbit_element(k)).decode(code)));
      }
      for (const std::vector<float>& values : {codebook(k), ours}) {
        const int64_t n = number.rows * 64;
        std::vector<uint32_t> words(kbit_packed_words(n, k), 7);
        std::vector<uint8_t> scales(kbit_absmax_elements(n), 7);
        const Status status =
            quantize_kbit(bytes(name + ".w"), number.format, values, k, words, scales, pool_);
        ASSERT_TRUE(status.ok()) << status.error().message;
        ASSERT_EQ(words.size(), expected.size() + k);
        EXPECT_TRUE(std::equal(expected.begin(), expected.end(), words.begin())) << name << k;
        EXPECT_TRUE(std::equal(absmax.begin(), absmax.end(), scales.begin())) << name << k;
        for (int i = 0; i < k; ++i) EXPECT_EQ(words[expected.size() + i], 0u);
        EXPECT_EQ(scales.back(), 0);
      }
    }
  }
}

TEST_F(KbitGolden, dequantizes_to_the_same_numbers) {
  for (const Number& number : kNumbers) {
    const std::string name = std::string("128x64.") + number.name;
    for (int k = 2; k <= 5; ++k) {
      const std::string with_k = name + "." + std::to_string(k);
      const std::vector<uint32_t> words = packed(with_k + ".packed");
      const std::vector<float> values = codebook(k);
      const std::span<const std::byte> expected = bytes(with_k + ".dequantized");
      std::vector<std::byte> out(expected.size());
      ASSERT_TRUE(dequantize_kbit(codes(words, name + ".absmax", values, k), 32 * 64, number.format,
                                  out, pool_)
                      .ok());
      EXPECT_TRUE(std::ranges::equal(out, expected)) << with_k;
    }
  }
  // Through tiles, whose first 32 outputs these are.
  const std::vector<uint32_t> words = packed("128x64.f16.5.packed_tiled");
  const std::vector<float> values = codebook(5);
  std::vector<std::byte> out(std::size_t{128} * 64 * 2);
  ASSERT_TRUE(dequantize_kbit_tiled(codes(words, "128x64.f16.absmax_tiled", values, 5), 64, 128,
                                    Format::kF16, out, pool_)
                  .ok());
  const std::span<const std::byte> expected = bytes("128x64.f16.5.dequantized");
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), out.begin()));
}

TEST_F(KbitGolden, repacks_to_the_same_tiles_and_back) {
  const auto check = [&](const std::string& name, int64_t n, int64_t k_dim, int k) {
    const std::string with_k = name + "." + std::to_string(k);
    const std::vector<uint32_t> flat = packed(with_k + ".packed");
    const std::vector<uint8_t> absmax = numbers<uint8_t>(name + ".absmax");
    const std::vector<uint32_t> expected = packed(with_k + ".packed_tiled");
    const std::vector<uint8_t> scales = numbers<uint8_t>(name + ".absmax_tiled");
    std::vector<uint32_t> tiled(expected.size() + k, 7);
    std::vector<uint8_t> tiled_scales(scales.size() + 1, 7);
    ASSERT_TRUE(repack_kbit(flat, absmax, k_dim, n, k, tiled, tiled_scales).ok());
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), tiled.begin())) << with_k;
    EXPECT_TRUE(std::equal(scales.begin(), scales.end(), tiled_scales.begin())) << with_k;
    std::vector<uint32_t> back(flat.size() + k);
    std::vector<uint8_t> back_scales(absmax.size() + 1);
    ASSERT_TRUE(flatten_kbit(tiled, tiled_scales, k_dim, n, k, back, back_scales).ok());
    EXPECT_TRUE(std::equal(flat.begin(), flat.end(), back.begin())) << with_k;
    EXPECT_TRUE(std::equal(absmax.begin(), absmax.end(), back_scales.begin())) << with_k;
  };
  for (int k = 2; k <= 5; ++k) check("128x64.f16", 128, 64, k);
  check("256x96.f16", 256, 96, 3);  // K is an odd multiple of 32
}

TEST_F(KbitGolden, products) {
  const std::vector<uint16_t> x = numbers<uint16_t>("128x64.f16.x");
  for (int k = 2; k <= 5; ++k) {
    const std::string name = "128x64.f16." + std::to_string(k);
    const std::vector<uint32_t> tiled = packed(name + ".packed_tiled");
    const std::vector<uint32_t> flat = packed(name + ".packed");
    const std::vector<float> values = codebook(k);
    const std::vector<float> y = numbers<float>(name + ".y");
    std::vector<std::byte> dense(std::size_t{128} * 64 * 4);
    ASSERT_TRUE(dequantize_kbit(codes(flat, "128x64.f16.absmax", values, k), 128 * 64, Format::kF32,
                                dense, pool_)
                    .ok());
    std::vector<uint16_t> out(3 * 128);
    std::vector<uint16_t> out_flat(3 * 128);
    std::vector<uint16_t> grouped(3 * 128);
    KbitProduct product = {std::as_bytes(std::span(x)), std::as_writable_bytes(std::span(out)),
                           Format::kF16, 64, 128};
    ASSERT_TRUE(
        kbit_gemm_prod(product, codes(tiled, "128x64.f16.absmax_tiled", values, k), 1, pool_).ok());
    product.out = std::as_writable_bytes(std::span(out_flat));
    ASSERT_TRUE(kbit_scalar_gemv(product, codes(flat, "128x64.f16.absmax", values, k), pool_).ok());
    product.out = std::as_writable_bytes(std::span(grouped));
    const std::vector<int32_t> offsets = {0, 3};
    ASSERT_TRUE(kbit_grouped_gemm(product, codes(tiled, "128x64.f16.absmax_tiled", values, k),
                                  offsets, pool_)
                    .ok());
    EXPECT_EQ(out, out_flat);
    EXPECT_EQ(out, grouped);
    for (std::size_t i = 0; i < out.size(); ++i) {
      double magnitude = 0;
      for (int64_t j = 0; j < 64; ++j) {
        float w = 0;
        std::memcpy(&w, dense.data() + ((i % 128) * 64 + j) * 4, 4);
        magnitude += std::fabs(w * info(Format::kF16).decode(x[i / 128 * 64 + j]));
      }
      const double found = info(Format::kF16).decode(out[i]);
      if (std::isinf(found)) {
        EXPECT_GE(std::fabs(y[i]), 65504) << i;
        continue;
      }
      // Weights and results are rounded to f16 there or here, and sums to f32 in both.
      EXPECT_NEAR(found, y[i], 3 * 0x1p-11 * magnitude + 0x1p-24) << name << " " << i;
    }
  }
}

}  // namespace
}  // namespace subbyte::codebook
