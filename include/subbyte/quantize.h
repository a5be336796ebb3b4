#pragma once
// From numbers to few bits: weights to matrices, and activations to blocks of small floats.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "subbyte/matrix.h"
#include "subbyte/products.h"

SUBBYTE_BEGIN_WRAPPED_NAMESPACE

/// How to store weights. What is not said is what the format usually has.
struct WeightQuantization {
  /// One of weight_quantizations(); other software's names ("w4a16", "bnb_nf4") are known, too.
  std::string format = "awq";
  std::optional<int> bits = {};            // 2 to 8, where the format has several
  std::optional<int64_t> group_size = {};  // inputs that share a scale; 0: the whole row
  std::optional<bool> symmetric = {};      // no zero points
};

/// The names of the formats: "awq", "gptq", "mxfp4", "nvfp4", "nf4", "fp8", "kbit4", ...
std::vector<std::string> weight_quantizations();

/// Rounds weights [rows][cols] to nearest. The same bits for any number of threads (nullptr: the
/// library's own). Codes: quantize.format, quantize.bits, quantize.group_size, quantize.symmetry
/// (what the format lacks), quantize.shape, quantize.not_finite, quantize.scale_overflow.
Result<Matrix> quantize_weights(std::span<const float> weights, int64_t rows, int64_t cols,
                                const WeightQuantization& quantization = {},
                                std::shared_ptr<Executor> threads = nullptr);

/// Blocks of small floats that share a scale, [rows][cols]:
///
///   format        element  group  scale
///   kMxfp8E4M3    e4m3     32     e8m0
///   kMxfp8E5M2    e5m2     32     e8m0
///   kMxfp4        e2m1     32     e8m0
///   kNvfp4        e2m1     16     e4m3      and one float for the tensor
enum class BlockFormat : uint8_t { kMxfp8E4M3, kMxfp8E5M2, kMxfp4, kNvfp4 };

/// The exponent of a shared scale, from the largest magnitude of its group: kFloor as the OCP
/// specification has it, kCeil the least that clips nothing (FlashInfer), kBump175 the former, one
/// more where the largest would be 1.75 or more times the largest power of two of the element.
enum class ScaleRule : uint8_t { kFloor, kCeil, kBump175 };

/// The order of the scales: [rows][groups], or in atoms of 128 or 8 rows by 4 groups, as tensor
/// cores read them; rows and groups are padded to whole atoms.
enum class ScaleLayout : uint8_t { kLinear, k128x4, k8x4 };

/// A quantization to blocks. Codes are [rows][padded columns], those of e2m1 two in a byte with the
/// even column in the low half; padding is zeros with scale 0.
struct BlockQuantization {
  BlockFormat format = BlockFormat::kMxfp8E4M3;
  Format input = Format::kBF16;  // or kF16, kF32
  ScaleRule rule = ScaleRule::kCeil;
  ScaleLayout layout = ScaleLayout::kLinear;
  int64_t rows = 0;        // 0 to 2^24
  int64_t cols = 0;        // in groups, 1 to 2^24
  int64_t alignment = 32;  // of the columns of the codes: a multiple of 32
  float tensor_scale = 1;  // of NVFP4: w = element * scale * tensor_scale; 2^-100 to 2^100
};

/// Sizes of what a quantization writes.
struct BlockSizes {
  int64_t padded_cols = 0;  // of the codes
  int64_t code_bytes = 0;
  int64_t scale_rows = 0;  // with padding
  int64_t scale_cols = 0;  // with padding; scales have scale_rows * scale_cols bytes
  int64_t scale_bytes() const { return scale_rows * scale_cols; }
};

/// Codes: blocks.shape, blocks.input, blocks.alignment, blocks.tensor_scale.
Result<BlockSizes> block_sizes(const BlockQuantization& blocks);

/// Quantizes x [rows][cols] of blocks.input, aligned as its numbers are. On any machine the same
/// bits, those of FlashInfer's operators with kCeil. Codes: those of block_sizes; blocks.buffer
/// (sizes that are not those).
Status quantize_blocks(Cpu& cpu, const BlockQuantization& blocks, std::span<const std::byte> x,
                       std::span<std::byte> codes, std::span<std::byte> scales);

SUBBYTE_END_NAMESPACE
