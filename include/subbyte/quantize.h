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

#include "subbyte/blocks.h"
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

/// Quantizes x [rows][cols] of blocks.input, aligned as its numbers are. On any machine the same
/// bits, those of FlashInfer's operators with kCeil. Codes: those of check_block_quantization;
/// blocks.buffer (sizes that are not those).
Status quantize_blocks(Cpu& cpu, const BlockQuantization& blocks, std::span<const std::byte> x,
                       std::span<std::byte> codes, std::span<std::byte> scales);

SUBBYTE_END_NAMESPACE
