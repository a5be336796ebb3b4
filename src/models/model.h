#pragma once
// A loaded model: tokens in, logits out.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>

#include "models/kv_cache.h"
#include "models/model_config.h"
#include "ops/execution.h"

namespace subbyte {

class Model {
 public:
  virtual ~Model() = default;

  const ModelConfig& config() const { return config_; }

  /// Runs `tokens` behind what is in the cache and writes the logits of the last
  /// logits.size() / vocab_size of them, [n][vocab_size]; that may be none. Long inputs are worked
  /// off in chunks of kChunk tokens.
  /// Codes: model.token_range, model.context_full; nothing has happened then.
  Status forward(Execution& execution, std::span<const int32_t> tokens, KvCache& cache,
                 std::span<float> logits) const;

  /// Bytes of weights that decoding one token reads (of experts: those that one token uses).
  int64_t bytes_per_token() const { return bytes_per_token_; }
  /// Bytes of all weights.
  int64_t weight_bytes() const { return weight_bytes_; }
  /// The largest run of weight bytes in memory, to measure the read bandwidth on.
  std::span<const std::byte> largest_weights() const { return largest_weights_; }

  static constexpr int64_t kChunk = 128;

 protected:
  explicit Model(const ModelConfig& config) : config_(config) {}

  /// Runs at most kChunk tokens at the positions behind cache.size() and leaves the last hidden
  /// states, before the final norm, in `hidden` [tokens][hidden_size]. Stores keys and values but
  /// does not advance the cache.
  virtual void run_layers(Execution& execution, std::span<const int32_t> tokens, KvCache& cache,
                          std::span<float> hidden) const = 0;
  /// Final norm and head: logits [n][vocab_size] from hidden [n][hidden_size].
  virtual void run_head(Execution& execution, std::span<float> logits,
                        std::span<const float> hidden) const = 0;

  ModelConfig config_;

 private:
  friend class WeightLoader;  // fills these while it loads

  int64_t bytes_per_token_ = 0;
  int64_t weight_bytes_ = 0;
  std::span<const std::byte> largest_weights_;
};

/// Called while loading with the bytes read so far and in all.
using LoadProgress = std::function<void(uint64_t done, uint64_t total)>;

struct LoadOptions {
  /// 4 or 8: embedding and head are quantized while they are loaded (src/models/head_bits.h says
  /// how), unless the file holds the head quantized already. 16: as in the file.
  int head_bits = 16;
  LoadProgress progress = nullptr;
};

/// Opens a model directory or a model file of OrinMLLM: its config says which model, the tensors
/// are imported and checked against it. Codes: those of read_model_config, TensorSource and the
/// importers; model.unsupported for other model types, model.weight_shape when a tensor disagrees
/// with config.json, model.head_bits for bits that there are not.
Result<std::unique_ptr<Model>> load_model(const std::filesystem::path& path, Execution& execution,
                                          const LoadOptions& options = {});

}  // namespace subbyte
