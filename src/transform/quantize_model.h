#pragma once
// Quantizing a whole model directory.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/executor.h"
#include "base/leftover.h"
#include "base/status.h"
#include "checkpoints/containers/checkpoint_writer.h"
#include "transform/difference.h"

namespace subbyte {

/// Signal to noise that 4 bits leave of weights of any ordinary distribution, and more.
inline constexpr double kLeastSignalDb = 10;

struct QuantizeOptions {
  std::string format = "awq";  // the AWQ container, version gemm, 4 bits with zero points
  int64_t group_size = 128;
  /// True where a matrix or tensor may be left with less than kLeastSignalDb.
  bool allow_lossy = false;
  Notice notice = nullptr;  // of what earlier runs left behind
};

struct QuantizeReport {
  int64_t quantized_tensors = 0;
  int64_t kept_tensors = 0;  // embeddings, norms, the head
  uint64_t source_bytes = 0;
  uint64_t result_bytes = 0;
  double signal_to_noise_db = 0;  // of all quantized weights together; infinite without errors
  WorstLoss worst;                // of all matrices and kept tensors
};

/// Reads an unquantized model directory and writes a quantized one that appears at `destination`
/// whole or not at all: linear layers rounded to nearest with min-max zero points, everything else
/// as it is (16-bit floats for embeddings, norms and head as AWQ files have them), config.json
/// with the quantization_config of the container, tokenizer and other side files copied.
/// Streams: no more than a few tensors are in memory. Identical bytes for any number of threads.
/// Codes: quantize.format, quantize.group_size (also when it does not divide the inputs of a
/// layer), quantize.already_quantized, quantize.model_type (experts have no AWQ form), export.shape
/// (outputs not a multiple of 8), quantize.f16_overflow, quantize.not_finite,
/// quantize.scale_overflow, quantize.loss (less than kLeastSignalDb is left of a tensor), those of
/// the loaders, file.*. Every message about a tensor names it.
Result<QuantizeReport> quantize_model(const std::filesystem::path& source,
                                      const std::filesystem::path& destination,
                                      const QuantizeOptions& options, Executor& pool,
                                      const ByteProgress& progress = nullptr);

}  // namespace subbyte
