#pragma once
// The architecture of a model as config.json states it: what nearly all families have, and what one
// has of its own. Everything is checked here, once: later code divides and allocates by these
// numbers.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoints/config/model_files.h"
#include "models/family_config.h"
#include "models/ropes/rope_kind.h"
#include "ops/rope.h"

namespace subbyte {

namespace json {
class Object;
}

struct ModelConfig {
  std::string model_type;  // "qwen3", "qwen3_moe", "gpt_oss"
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;  // given, or hidden_size / num_heads
  int64_t vocab_size = 0;
  int64_t max_positions = 0;  // with what its rope adds
  float rms_norm_eps = 1e-6f;
  bool tie_word_embeddings = false;
  bool contradicts_ties = false;  // a wrapper and its text part: whether there is a head decides
  bool attention_bias = false;    // of q, k and v, and of o unless its family says otherwise
  bool mlp_bias = false;          // of dense blocks and shared experts
  bool is_in_f32 = false;         // the reference rounds nothing to the type of the embedding
  Rope rope;
  std::vector<int64_t> windows;  // [num_layers]; 0: full attention

  /// Tokens that end a generation: generation_config.json's, else those of config.json.
  std::vector<int32_t> eos_tokens;

  FamilyConfig own;

  bool operator==(const ModelConfig&) const = default;
};

/// Limits far above every published model and far below anything that could overflow or exhaust.
inline constexpr int64_t kMaxWidth = int64_t{1} << 20;
inline constexpr int64_t kMaxExperts = 4096;
inline constexpr int64_t kMaxVocabulary = int64_t{1} << 24;
inline constexpr int64_t kMaxPositions = int64_t{1} << 26;

/// Reads config.json of a model and, where it is there, generation_config.json. Codes: config.*
/// (model_type, rope, ...), those of ModelFiles::config, model.adapter.
Result<ModelConfig> read_model_config(const ModelFiles& model);

/// The same whatever lies beside it.
Result<ModelConfig> model_config_of(const ModelFiles& model);

/// The same from a parsed config.json, without generation_config.json.
Result<ModelConfig> parse_model_config(const json::Object& config);

/// Finds the config of the text model inside of a wrapper (ModelType); nullopt: `config` is none.
/// Codes: json.*.
inline constexpr const char* kTextConfig = "text_config";
Result<std::optional<json::Object>> text_part_of(const json::Object& config);

}  // namespace subbyte
