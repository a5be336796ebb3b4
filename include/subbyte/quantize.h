#pragma once
// From numbers to few bits: weights to matrices. Activations become blocks of small floats by
// Cpu::quantize_blocks() (products.h).

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "subbyte/executor.h"
#include "subbyte/matrix.h"

SUBBYTE_BEGIN_NAMESPACE

/// How to store weights. What is not said is what the format usually has.
struct WeightQuantization {
  /// One of weight_quantizations(), one of other software ("w4a16", "bnb_nf4"), an element ("u4",
  /// "nfl3"), or what to_string(WeightFormat) writes ("u4 g128 scale f16 zero u8").
  std::string format = "awq";
  std::optional<int> bits = {};  // 2 to 8, where the format has several
  /// Inputs that share a scale; 0 and -1: the whole row. nullopt: as usual, halved until it divides
  /// the inputs.
  std::optional<int64_t> group_size = {};
  std::optional<bool> symmetric = {};  // no zero points
};

/// The names of the formats: "awq", "gptq", "mxfp4", "nvfp4", "nf4", "fp8", "kbit4", ...
std::vector<std::string> weight_quantizations();

/// Rounds weights [rows][cols] to nearest. The same bits for any number of threads (nullptr: the
/// library's own). Codes: quantize.format, quantize.bits, quantize.group_size, quantize.symmetry
/// (what the format lacks, or the text says otherwise), quantize.shape, quantize.loss,
/// quantize.not_finite, quantize.scale_overflow.
Result<Matrix> quantize_weights(std::span<const float> weights, int64_t rows, int64_t cols,
                                const WeightQuantization& quantization = {},
                                std::shared_ptr<Executor> threads = nullptr);

SUBBYTE_END_NAMESPACE
