// What the text of bitsandbytes' kernels for vector quantization and Hadamard rotation gives,
// compiled for a CPU (branch archive/kbit-gemv-v8, bb999f9f; tests/data/kbit/vq.safetensors):
// indices, scales, tiles, numbers and rotations to the bit.
//
//   vqP.codebook; vqP.NxK.T.w, .packed, .absmax, their _tiled, .dequantized    w and dequantized
//   hadamard.T.x, .D.plain, .D.signed, .D.signs; hadamard_full.T.D.x, ...      the first 32 rows

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/thread_pool.h"
#include "codebook/hadamard.h"
#include "codebook/vq.h"
#include "support/tensors_of_file.h"

namespace subbyte::codebook {
namespace {

class VqGolden : public TensorsOfFile {
 protected:
  VqGolden() : TensorsOfFile("kbit/vq.safetensors") {}

  void expect_quantized(int p, const std::string& name, Format dtype, int64_t cols) {
    const std::string base = "vq" + std::to_string(p) + "." + name;
    const int64_t blocks = 32 * cols / 32;
    const auto codebook = numbers<uint16_t>("vq" + std::to_string(p) + ".codebook");
    const auto packed = numbers<uint32_t>(base + ".packed");
    const auto absmax = numbers<uint8_t>(base + ".absmax");
    std::vector<uint32_t> words(blocks * 8 / p + 3, 7);
    std::vector<uint8_t> scales(blocks + 1, 7);
    ASSERT_TRUE(quantize_vq(bytes(base + ".w"), dtype, codebook, p, words, scales).ok());
    EXPECT_TRUE(std::equal(words.begin(), words.end() - 3, packed.begin())) << base;
    EXPECT_TRUE(std::equal(scales.begin(), scales.end() - 1, absmax.begin())) << base;
    EXPECT_EQ(words.back(), 0u);
    EXPECT_EQ(scales.back(), 0);
  }

  void expect_dequantized(int p, const std::string& name, Format dtype) {
    const std::string base = "vq" + std::to_string(p) + "." + name;
    const auto codebook = numbers<uint16_t>("vq" + std::to_string(p) + ".codebook");
    const auto packed = numbers<uint32_t>(base + ".packed");
    const std::span<const std::byte> expected = bytes(base + ".dequantized");
    std::vector<std::byte> out(expected.size());
    const VqCodes codes = {packed, bytes(base + ".absmax"), codebook, p, Format::kE4M4};
    ASSERT_TRUE(dequantize_vq(codes, 32 * 64, dtype, out).ok());
    EXPECT_TRUE(std::ranges::equal(out, expected)) << base;
  }

  void expect_tiles(int p, const std::string& name, int64_t k_dim) {
    const std::string base = "vq" + std::to_string(p) + "." + name;
    const auto expected = numbers<uint32_t>(base + ".packed_tiled");
    const auto expected_scales = numbers<uint8_t>(base + ".absmax_tiled");
    std::vector<uint32_t> tiled(expected.size() + 8 / p);
    std::vector<uint8_t> scales(expected_scales.size() + 1);
    ASSERT_TRUE(repack_vq(numbers<uint32_t>(base + ".packed"), numbers<uint8_t>(base + ".absmax"),
                          k_dim, 128, p, tiled, scales)
                    .ok());
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), tiled.begin())) << base;
    EXPECT_TRUE(std::equal(expected_scales.begin(), expected_scales.end(), scales.begin()));
  }

  void expect_rotated(const std::string& x, const std::string& base, Format dtype, int64_t dim) {
    const auto signs = numbers<uint32_t>(base + ".signs");
    for (const bool is_signed : {false, true}) {
      std::vector<std::byte> data(bytes(x).begin(), bytes(x).end());
      ASSERT_TRUE(hadamard_rotate(
                      data, dtype, dim,
                      is_signed ? std::span<const uint32_t>(signs) : std::span<const uint32_t>())
                      .ok());
      EXPECT_TRUE(std::ranges::equal(data, bytes(base + (is_signed ? ".signed" : ".plain"))))
          << base;
    }
  }
};

TEST_F(VqGolden, quantizes_to_the_same_indices_and_scales) {
  for (const int p : {2, 4}) {
    expect_quantized(p, "128x64.f16", Format::kF16, 64);
    expect_quantized(p, "128x64.f32", Format::kF32, 64);
    expect_quantized(p, "128x96.bf16", Format::kBF16, 96);
  }
}

TEST_F(VqGolden, dequantizes_to_the_same_numbers) {
  for (const int p : {2, 4}) {
    expect_dequantized(p, "128x64.f16", Format::kF16);
    expect_dequantized(p, "128x64.f32", Format::kF32);
  }
}

TEST_F(VqGolden, repacks_to_the_same_tiles) {
  for (const int p : {2, 4}) {
    expect_tiles(p, "128x64.f16", 64);
    expect_tiles(p, "128x96.bf16", 96);
  }
}

TEST_F(VqGolden, rotations) {
  expect_rotated("hadamard.f16.x", "hadamard.f16.32", Format::kF16, 32);
  expect_rotated("hadamard.f16.x", "hadamard.f16.256", Format::kF16, 256);
  expect_rotated("hadamard.bf16.x", "hadamard.bf16.128", Format::kBF16, 128);
  expect_rotated("hadamard_full.f16.1024.x", "hadamard_full.f16.1024", Format::kF16, 1024);
}

/// Flat and tiled weights give the same products, which are those of the dequantized ones.
TEST_F(VqGolden, products) {
  constexpr int64_t kN = 128, kK = 64;
  ThreadPool pool(2);
  const auto x = numbers<uint16_t>("hadamard.f16.x");  // as 3 rows of 64
  for (const int p : {2, 4}) {
    const std::string base = "vq" + std::to_string(p) + ".128x64.f16";
    const auto codebook = numbers<uint16_t>("vq" + std::to_string(p) + ".codebook");
    const auto flat = numbers<uint32_t>(base + ".packed");
    const auto tiled = numbers<uint32_t>(base + ".packed_tiled");
    const VqCodes flat_codes = {flat, bytes(base + ".absmax"), codebook, p, Format::kE4M4};
    const VqCodes tiled_codes = {tiled, bytes(base + ".absmax_tiled"), codebook, p, Format::kE4M4};
    std::vector<float> weights(kN * kK);
    std::vector<float> of_tiles(kN * kK);
    ASSERT_TRUE(
        dequantize_vq(flat_codes, kN * kK, Format::kF32, std::as_writable_bytes(std::span(weights)))
            .ok());
    ASSERT_TRUE(dequantize_vq_tiled(tiled_codes, kK, kN, Format::kF32,
                                    std::as_writable_bytes(std::span(of_tiles)))
                    .ok());
    EXPECT_EQ(weights, of_tiles);
    std::vector<uint16_t> out(3 * kN);
    std::vector<uint16_t> out_tiled(3 * kN);
    KbitProduct product = {std::as_bytes(std::span(x).first(3 * kK)),
                           std::as_writable_bytes(std::span(out)), Format::kF16, kK, kN};
    ASSERT_TRUE(vq_scalar_gemv(product, flat_codes, pool).ok());
    product.out = std::as_writable_bytes(std::span(out_tiled));
    ASSERT_TRUE(vq_gemm_prod(product, tiled_codes, pool).ok());
    EXPECT_EQ(out, out_tiled);
    for (int64_t i = 0; i < 3 * kN; ++i) {
      double sum = 0;
      double magnitude = 0;
      for (int64_t k = 0; k < kK; ++k) {
        const double term =
            double{weights[i % kN * kK + k]} * info(Format::kF16).decode(x[i / kN * kK + k]);
        sum += term;
        magnitude += std::fabs(term);
      }
      const double found = info(Format::kF16).decode(out[i]);
      if (std::isinf(found)) {
        EXPECT_GE(std::fabs(sum), 65504) << i;
        continue;
      }
      EXPECT_NEAR(found, sum, 0x1p-11 * std::fabs(sum) + 0x1p-15 * magnitude + 0x1p-24) << i;
    }
  }
}

TEST_F(VqGolden, refuses) {
  const auto codebook = numbers<uint16_t>("vq2.codebook");
  std::vector<float> a(64, 1);
  std::vector<uint32_t> packed(8);
  std::vector<uint8_t> absmax(2);
  const auto quantized = [&](std::span<const uint16_t> values, int p) {
    const Status status =
        quantize_vq(std::as_bytes(std::span(a)), Format::kF32, values, p, packed, absmax);
    return status.ok() ? "" : std::string(status.error().code);
  };
  EXPECT_EQ(quantized(codebook, 2), "");
  EXPECT_EQ(quantized(codebook, 3), "vq.p");
  EXPECT_EQ(quantized(codebook, 4), "kbit.codebook");
  std::vector<uint16_t> infinite = codebook;
  infinite[5] = 0x7C00;
  EXPECT_EQ(quantized(infinite, 2), "kbit.codebook");
  a[40] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(quantized(codebook, 2), "quantize.not_finite");
  a[40] = 0;
  packed.resize(7);
  EXPECT_EQ(quantized(codebook, 2), "kbit.buffer");
  std::vector<std::byte> data(128);
  const auto rotated = [&](Format dtype, int64_t dim, std::span<const uint32_t> signs = {}) {
    const Status status = hadamard_rotate(data, dtype, dim, signs);
    return status.ok() ? "" : std::string(status.error().code);
  };
  EXPECT_EQ(rotated(Format::kF16, 64), "");
  EXPECT_EQ(rotated(Format::kF32, 32), "kbit.dtype");
  EXPECT_EQ(rotated(Format::kF16, 48), "hadamard.dim");
  EXPECT_EQ(rotated(Format::kF16, 16), "hadamard.dim");
  EXPECT_EQ(rotated(Format::kF16, 128), "kbit.buffer");
  EXPECT_EQ(rotated(Format::kF16, 64, std::span<const uint32_t>(packed).first(1)),
            "hadamard.signs");
}

}  // namespace
}  // namespace subbyte::codebook
