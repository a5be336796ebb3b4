#pragma once
// A loaded model: tokens in, logits out.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/mapped_file.h"
#include "models/model_config.h"
#include "models/model_weights.h"
#include "ops/backend.h"

namespace subbyte {

class Model {
 public:
  /// Makes a model of a plan that somebody has recorded and compiled; load_model() is the usual
  /// way.
  Model(const ModelConfig& config, std::unique_ptr<CompiledStep> step, const LoadFacts& facts = {})
      : config_(config), facts_(facts), step_(std::move(step)) {}

  const ModelConfig& config() const { return config_; }
  const LoadFacts& facts() const { return facts_; }
  /// The operations of a step.
  const StepPlan& plan() const { return step_->plan(); }

  /// One step on the backend that the model was loaded with: appends the tokens of each part to its
  /// sequence, and gives the logits that the parts ask for. The sequences have pages of one pool
  /// and are different ones.
  /// Codes: batch.parts (none, one without tokens, one with more logits than tokens, a sequence
  /// twice, two pools, a pool for another model), model.token_range, those of Sequence::reserve and
  /// of the backend. The sequences are as long as before then.
  Status forward(Backend& backend, const Batch& batch, Logits& logits) const;

  /// Its first half; the second is Backend::wait(). The sequences are as long as after the step,
  /// which they are not where wait() fails: who calls this cuts them back then
  /// (engine/step_queue.h). `before` is the step before this one, if that was not waited for: its
  /// choices may stand in the batch as pending_token(). Codes: those of forward that are not of
  /// the backend; then nothing was submitted.
  Status submit(Backend& backend, const Batch& batch, std::span<const Part> before = {}) const;

  /// `error`, sampling.not_finite of a step, with the first operation whose results are not finite:
  /// `batch`, which that step computed, is computed again, from sequences as they were before it.
  /// No step is on its way.
  Error locate_not_finite(Backend& backend, const Batch& batch, const Error& error) const;

  /// Checks that the files in which weights are still read are as they were when they were opened:
  /// what was computed meanwhile is of the model then. Code file.changed.
  Status verify_unchanged() const;

  /// Code model.token_range unless all are in the vocabulary.
  Status check_tokens(std::span<const int32_t> tokens) const;

  /// A pool for what sequences keep, keys and values as `type`. Codes kv.memory, kv.unsupported.
  Result<KvPool> make_kv_pool(Backend& backend, Element type, const CacheSize& size) const;

  /// Bytes of weights that decoding one token reads (of experts: those that one token uses).
  int64_t bytes_per_token() const { return bytes_per_token_; }
  /// Bytes of all weights.
  int64_t weight_bytes() const { return weight_bytes_; }
  /// The largest one, to measure the read bandwidth on.
  const Weight& largest_weight() const { return largest_weight_; }

 private:
  friend class WeightLoader;  // fills in the accounts

  Status check(const Batch& batch, std::span<const Part> before) const;
  Status check_pool(const KvPool& pool) const;

  ModelConfig config_;
  LoadFacts facts_;
  std::unique_ptr<CompiledStep> step_;
  std::vector<std::weak_ptr<const MappedFile>> files_;  // gone where all was copied
  int64_t bytes_per_token_ = 0;
  int64_t weight_bytes_ = 0;
  Weight largest_weight_;
};

/// The operations of a step of the model that config.json describes, without its weights: what its
/// cache keeps and its steps take. Their handles have `bytes`, where these are known. Code
/// plan.shape.
Result<StepPlan> plan_of(const ModelConfig& config, const LoadFacts& facts = {},
                         const WeightBytes& bytes = {});

/// Called while loading with the bytes read so far and in all.
using LoadProgress = std::function<void(uint64_t done, uint64_t total)>;

struct LoadOptions {
  /// 4 or 8: embedding and head are quantized while they are loaded (src/models/head_bits.h says
  /// how), unless the file holds the head quantized already. 16: as in the file.
  int head_bits = 16;
  LoadProgress progress = nullptr;

  // What is to run, for machines with memory of their own (Backend::memory()): room for it is
  // counted before the model is loaded. Larger caches and steps find out for themselves.
  Element cache_type = Element::kF16;
  int64_t cache_positions = 0;
  bool keeps_prefixes = false;     // CacheSize
  int64_t state_cache_bytes = -1;  // checkpoints_in()
  int64_t step_tokens = 0;  // 0: Backend::prompt_chunk(), or all positions of a smaller cache
  int64_t step_sequences = 1;
  int64_t step_logits = 1;  // rows
};

/// Parts of the matrices that are read: all; the scales alone; nothing, the headers have to do.
/// Without kAll the backend gets zeros of their sizes, and computes in the memory of the host.
enum class Reads : uint8_t { kAll, kScales, kHeaders };

/// Checks that load_model would take the model, from its files' headers, its small tensors and,
/// with Reads::kScales, the scales of its matrices: codes are never refused. `backend` computes in
/// the memory of the host, and keeps nothing. Codes: those of load_model.
Status check_loading(const ModelFiles& files, Backend& backend, Reads reads);

/// Opens a model directory or a model file of OrinMLLM: its config says which model, the tensors
/// are imported, checked against it and put into the memory of `backend`. Codes: those of
/// read_model_config, TensorSource, the importers and Backend::upload; model.unsupported for other
/// model types, model.weight_shape when a tensor disagrees with config.json, model.head_bits for
/// bits that there are not; memory.device, before weights are read, when they, the cache and the
/// workspace are more than the machine has free.
Result<std::unique_ptr<Model>> load_model(const ModelFiles& files, Backend& backend,
                                          const LoadOptions& given = {});

}  // namespace subbyte
