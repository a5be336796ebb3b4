// What PyTorch 2.11 packed (tests/data/int4pack), against the layouts; and what it multiplied,
// against what the layouts say that codes, scales and offsets mean. It lies in this layer because
// the files are safetensors.
//
//   I.w U8 [N, K] codes; I.default, I.avx2, I.avx512 packed by a CPU of that capability;
//   I.cuda_packed.innerT packed by a GPU; 3.x, 3.sz, 3.y an input, scales_and_zeros, the product

#include <gtest/gtest.h>

#include <cmath>

#include "checkpoints/import_parts.h"
#include "foreign_layouts/int4pack.h"
#include "support/tensors_of_file.h"

namespace subbyte {
namespace {

class Int4packGolden : public TensorsOfFile {
 protected:
  Int4packGolden() : TensorsOfFile("int4pack/model.safetensors") {}

  /// The codes of case `i` as a canonical matrix has them.
  std::vector<std::byte> codes(const std::string& i) const {
    const FileTensor& w = tensor(i + ".w");
    std::vector<std::byte> packed(w.bytes.size() / 2);
    for (std::size_t j = 0; j < packed.size(); ++j) {
      packed[j] = w.bytes[2 * j] | w.bytes[2 * j + 1] << 4;
    }
    return packed;
  }
};

TEST_F(Int4packGolden, bytes_of_cpus) {
  const std::pair<const char*, CpuTile> cases[] = {
      {"default", CpuTile::kPairs32}, {"avx2", CpuTile::kHalves32}, {"avx512", CpuTile::kHalves64}};
  for (const std::string i : {"0", "2", "3"}) {
    const FileTensor& w = tensor(i + ".w");
    const auto rows = static_cast<int64_t>(w.shape[0]);
    const auto cols = static_cast<int64_t>(w.shape[1]);
    for (const auto& [capability, tile] : cases) {
      SCOPED_TRACE(i + "." + capability);
      const FileTensor& expected = tensor(i + "." + capability);
      std::vector<std::byte> packed(expected.bytes.size()), back(expected.bytes.size());
      pack_int4_cpu(packed.data(), codes(i).data(), rows, cols, tile);
      EXPECT_TRUE(std::ranges::equal(packed, expected.bytes));
      unpack_int4_cpu(back.data(), expected.bytes.data(), rows, cols, tile);
      EXPECT_EQ(back, codes(i));
    }
  }
}

TEST_F(Int4packGolden, words_of_gpus) {
  for (const std::string i : {"0", "3"}) {
    const FileTensor& w = tensor(i + ".w");
    for (const int inner : {2, 4, 8}) {
      SCOPED_TRACE(i + ", inner_k_tiles " + std::to_string(inner));
      const FileTensor& expected = tensor(i + ".cuda_packed.inner" + std::to_string(inner));
      std::vector<std::byte> packed(expected.bytes.size());
      pack_int4_cuda(packed.data(), codes(i).data(), static_cast<int64_t>(w.shape[0]),
                     static_cast<int64_t>(w.shape[1]), inner);
      EXPECT_TRUE(std::ranges::equal(packed, expected.bytes));
    }
  }
}

TEST_F(Int4packGolden, the_product_says_what_scales_and_zeros_mean) {
  const FileTensor& w = tensor("3.w");
  const FileTensor& sz = tensor("3.sz.float32");
  const auto rows = static_cast<int64_t>(w.shape[0]);
  const auto cols = static_cast<int64_t>(w.shape[1]);
  const int64_t group = cols / static_cast<int64_t>(sz.shape[0]);
  for (int64_t m = 0; m < 5; ++m) {
    for (int64_t n = 0; n < rows; ++n) {
      double sum = 0, magnitude = 0;
      for (int64_t k = 0; k < cols; ++k) {
        const int64_t pair = k / group * rows + n;
        const double q = std::to_integer<int>(w.bytes[n * cols + k]);
        const double weight = (q - 8) * load_f32(sz, 2 * pair) + load_f32(sz, 2 * pair + 1);
        const double product = load_f32(tensor("3.x.float32"), m * cols + k) * weight;
        sum += product;
        magnitude += std::abs(product);
      }
      // PyTorch sums in float32: a rounding of 2^-24 for each of the weights' two steps, the
      // product and the K sums before it, relative to the sum of magnitudes (weights whose q and z
      // cancel are small beside them: twice that covers them).
      const double bound = 2 * static_cast<double>(cols + 3) * 0x1p-24 * magnitude;
      EXPECT_NEAR(load_f32(tensor("3.y.float32"), m * rows + n), sum, bound);
    }
  }
}

/// The codes in tiles, multiplied with the golden's own scales and offsets (which no zero points
/// give: they were drawn freely), against the golden product.
TEST_F(Int4packGolden, tiles_give_the_weight_that_was_multiplied) {
  const FileTensor& w = tensor("3.w");
  const FileTensor& sz = tensor("3.sz.float32");
  const auto rows = static_cast<int64_t>(w.shape[0]);
  const auto cols = static_cast<int64_t>(w.shape[1]);
  const auto groups = static_cast<int64_t>(sz.shape[0]);
  const std::vector<std::byte> canonical = codes("3");
  std::vector<std::byte> weights(canonical.size());
  for (const auto& [capability, tile] :
       {std::pair{"avx2", CpuTile::kHalves32}, {"avx512", CpuTile::kHalves64}}) {
    pack_int4_cpu(weights.data(), canonical.data(), rows, cols, tile);
    EXPECT_TRUE(std::ranges::equal(weights, tensor(std::string("3.") + capability).bytes));
    for (int64_t m = 0; m < 5; ++m) {
      for (int64_t n = 0; n < rows; ++n) {
        double sum = 0, magnitude = 0;
        for (int64_t k = 0; k < cols; ++k) {
          const NibblePlace at = int4pack_cpu_place(n, k, rows, cols, tile);
          const double q = std::to_integer<int>(weights[at.byte]) >> at.shift & 0xF;
          const int64_t pair = k / (cols / groups) * rows + n;
          const double weight = (q - 8) * load_f32(sz, 2 * pair) + load_f32(sz, 2 * pair + 1);
          const double product = load_f32(tensor("3.x.float32"), m * cols + k) * weight;
          sum += product;
          magnitude += std::abs(product);
        }
        // As above.
        EXPECT_NEAR(load_f32(tensor("3.y.float32"), m * rows + n), sum,
                    2 * static_cast<double>(cols + 3) * 0x1p-24 * magnitude);
      }
    }
  }
}

}  // namespace
}  // namespace subbyte
