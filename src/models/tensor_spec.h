#pragma once
// The tensors of a model: what they are called, how large they are, what may happen to them. The
// walk that records its step lists them (step_recorder.h). Loading, verify, inspect, synth,
// quantize, convert and the need of memory read this list.
//
//   names       relative to the prefix that a checkpoint has in front of all but the head
//               (checkpoint_names.h): "layers.3.self_attn.qkv_proj"
//   parts       what lies in files as several matrices and is multiplied as one: q, k and v; gate
//               and up. A file may also have them joined under the name of the whole.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ops/weights.h"

namespace subbyte {

struct ModelConfig;

/// How published checkpoints of a family hold the experts of a layer. Both ways of either are read:
/// which one a file has is seen by its names.
enum class ExpertLayout : uint8_t {
  /// Modules for each expert. Newer software makes stacks of them: the rows of gate come before
  /// those of up, and floats are [experts][outputs][inputs].
  kModules,
  /// Stacks: the rows of gate and up alternate, and floats are [experts][inputs][outputs].
  kAlternatingStacks,
};

/// One of several matrices that lie next to each other along their outputs.
struct PartSpec {
  std::string name;  // "layers.3.self_attn.q_proj"
  int64_t rows = 0;
};

/// How tokens use the experts of a layer.
struct ExpertUse {
  int64_t per_token = 0;
  Gate gate = Gate::kSilu;
  SwiGLU swiglu = {};  // of kSilu
};

/// Heads of a matrix: each has rows that give keys, and after them rows that give values
/// (models/latent_weights.h).
struct LatentHeads {
  int64_t count = 0;  // 0: the matrix has no such heads
  int64_t keys = 0;
  int64_t values = 0;
};

struct TensorSpec {
  std::string name;  // of the module; of a kVector of the tensor
  TensorRole role = TensorRole::kLinear;
  int64_t rows = 0;     // outputs; the numbers of norms and vectors
  int64_t cols = 0;     // inputs, or taps; 0 for norms and vectors
  int64_t experts = 0;  // each with such a matrix; 0: one matrix
  ExpertUse use = {};   // of these
  bool may_be_quantized = false;
  bool has_bias = false;
  std::vector<PartSpec> parts = {};  // empty, or at least two
  /// Another one that this one must be equal to where a file has it at all.
  std::string_view tied_to = {};
  /// Or that stands for it only where a file does not have it: configs that contradict themselves.
  bool is_untied_if_there = false;
  /// The factors of a norm are so much more than the numbers of the file, times `factor`.
  float offset = 0;
  float factor = 1;
  bool is_row = false;  // of vectors: files have it as [1][rows]
  /// A table whose rows a machine looks up in the memory of the host (Backend::upload_far).
  bool is_far = false;
  LatentHeads latent = {};

  /// "layers.3.mlp.experts" of what stands under it.
  std::string_view parent() const { return std::string_view(name).substr(0, name.rfind('.')); }
  bool is_vector() const {
    return role == TensorRole::kNorm || is_plain() || role == TensorRole::kFilters;
  }
  /// Says whether its name is that of a tensor, and not of a module.
  bool is_plain() const {
    return role == TensorRole::kVector || role == TensorRole::kRates ||
           role == TensorRole::kFactors;
  }
  bool is_of_experts() const {
    return role == TensorRole::kExpertsGateUp || role == TensorRole::kExpertsDown;
  }
};

inline constexpr std::string_view kTable = "embed_tokens";
inline constexpr std::string_view kFinalNorm = "norm";
inline constexpr std::string_view kHead = "lm_head";

/// The tensors of the model that config.json describes, in the order of its step
/// (ModelFamily::record).
std::vector<TensorSpec> tensors_of(const ModelConfig& config);

/// Modules that a file may have beside them, and nobody reads.
std::vector<std::string> left_modules_of(const ModelConfig& config);

/// The first stack of experts among them; nullopt where all layers are dense.
std::optional<TensorSpec> expert_stack_of(const ModelConfig& config);

}  // namespace subbyte
