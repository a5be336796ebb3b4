#pragma once
// What is in a model directory, a safetensors file or a model file of OrinMLLM, read from the
// headers, g_idx and, unless they are large, the scales.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "models/model_config.h"
#include "ops/backend.h"
#include "ops/cache_layout.h"
#include "subbyte/executor.h"

namespace subbyte {

struct InspectedWeight {
  std::string name;             // of the module ("model.layers.0.mlp.up_proj") or of the tensor
  std::string importer;         // "awq", "gptq", "mxfp4", "dense"; "tensor" for what is no matrix
  std::string format;           // "u4 g128 scale f16 zero u8", "bf16"
  std::vector<uint64_t> shape;  // [outputs, inputs] or [experts, outputs, inputs]
  uint64_t parameters = 0;
  uint64_t bytes = 0;  // in the files, with scales, zero points and g_idx
  bool act_order = false;

  double bits_per_weight() const;
};

struct Inspection {
  std::string architecture;           // "qwen3"; empty for a lone safetensors file
  std::string quantization;           // "awq", "none", ...
  std::optional<ModelConfig> model;   // where this version runs the architecture
  std::vector<std::string> problems;  // what was not understood or contradicts itself
  std::vector<std::string> notes;     // what it lacks for text: `run` wants a tokenizer
  std::vector<InspectedWeight> weights;
  std::vector<std::string> files;
  uint64_t parameters = 0;
  uint64_t bytes = 0;
  uint64_t scale_bytes = 0;  // of them, those of scales
  int64_t unread = 0;        // tensors of other parts than the text model
  bool reads_scales = true;  // whether what loading refuses of them is among the problems

  /// Bits of a weight on average; 0 without weights.
  double bits_per_weight() const;
  /// Says whether `parameters` is the number of weights: without a config that is understood nobody
  /// says what is packed into integers.
  bool knows_weights() const;
};

/// State that a run keeps of sequences; none of a config that no step can be recorded of.
CacheLayout cache_of(const ModelConfig& model);

/// Bytes that a run takes on a CPU with a full context, in f16.
uint64_t full_context_bytes(const Inspection& inspection, const ModelConfig& model);

/// Scales of more than so many bytes together are not read: that would take seconds.
inline constexpr uint64_t kMaxScaleBytes = uint64_t{1} << 30;

/// Weights that no importer accepts are listed as plain tensors, and `problems` says why. With a
/// `backend`, which computes in the memory of the host, whatever keeps the model of a directory or
/// a model file from running there is a problem, too (check_loading, generation_config.json,
/// tokenizer.json if there is one). Codes: those of TensorSource and of config.json.
Result<Inspection> inspect(const std::filesystem::path& path, Executor& pool,
                           Backend* backend = nullptr);

}  // namespace subbyte
