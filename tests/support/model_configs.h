#pragma once
// A config.json of each family, and what becomes of it.

#include <string>
#include <vector>

#include "json/strict_json.h"
#include "models/model.h"
#include "models/model_config.h"
#include "models/tensor_spec.h"
#include "support/json_of.h"

namespace subbyte::testing {

inline constexpr const char* kQwen3 = R"({
  "model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072,
  "num_hidden_layers": 3, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
  "vocab_size": 151936, "max_position_embeddings": 40960, "rms_norm_eps": 1e-6,
  "rope_theta": 1000000, "tie_word_embeddings": true, "hidden_act": "silu",
  "eos_token_id": 151645, "sliding_window": null, "use_sliding_window": false})";

inline constexpr const char* kGptOss = R"({
  "model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880,
  "num_hidden_layers": 4, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
  "vocab_size": 201088, "max_position_embeddings": 131072, "rope_theta": 150000,
  "num_local_experts": 32, "num_experts_per_tok": 4, "sliding_window": 128,
  "eos_token_id": [200002, 199999],
  "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                   "original_max_position_embeddings": 4096, "truncate": false}})";

inline constexpr const char* kQwen3Moe = R"({
  "model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144,
  "moe_intermediate_size": 768, "num_hidden_layers": 4, "num_attention_heads": 32,
  "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936,
  "max_position_embeddings": 40960, "rope_theta": 1000000, "num_experts": 128,
  "num_experts_per_tok": 8, "norm_topk_prob": true, "decoder_sparse_step": 1,
  "mlp_only_layers": [], "sliding_window": null, "use_sliding_window": false})";

inline constexpr const char* kQwen3_5 = R"({
  "model_type": "qwen3_5_text", "hidden_size": 1024, "intermediate_size": 3584,
  "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256,
  "vocab_size": 248320, "max_position_embeddings": 262144, "rms_norm_eps": 1e-6,
  "tie_word_embeddings": true, "hidden_act": "silu", "eos_token_id": 248044,
  "full_attention_interval": 4, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
  "linear_num_key_heads": 16, "linear_num_value_heads": 16, "linear_value_head_dim": 128,
  "rope_parameters": {"mrope_interleaved": true, "mrope_section": [11, 11, 10],
                      "partial_rotary_factor": 0.25, "rope_theta": 10000000,
                      "rope_type": "default"}})";

inline constexpr const char* kQwen3_5Moe = R"({
  "model_type": "qwen3_5_moe_text", "hidden_size": 2048, "num_hidden_layers": 4,
  "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "vocab_size": 248320,
  "moe_intermediate_size": 512, "num_experts": 256, "num_experts_per_tok": 8,
  "shared_expert_intermediate_size": 512, "linear_num_value_heads": 32})";

inline constexpr const char* kQwen3Next = R"({
  "model_type": "qwen3_next", "hidden_size": 2048, "intermediate_size": 5120,
  "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
  "vocab_size": 151936, "decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": true,
  "moe_intermediate_size": 512, "num_experts": 512, "num_experts_per_tok": 10,
  "shared_expert_intermediate_size": 512, "partial_rotary_factor": 0.25, "rope_scaling": null,
  "rope_theta": 10000000})";

/// How tokens use the experts of a model, by its list of tensors.
inline ExpertUse expert_use(const ModelConfig& config) {
  return expert_stack_of(config).value_or(TensorSpec{}).use;
}

/// How the router of the first layer with experts chooses.
inline Routing routing_of(const ModelConfig& config) {
  const Result<StepPlan> plan = plan_of(config);
  if (!plan.ok() || ops_of<ExpertsOp>(*plan).empty()) return {};
  return ops_of<ExpertsOp>(*plan).front()->router.rule;
}

/// How many experts a layer has.
inline int64_t num_experts(const ModelConfig& config) {
  return expert_stack_of(config).value_or(TensorSpec{}).experts;
}

/// Which layers have experts.
inline std::vector<bool> expert_layers(const ModelConfig& config) {
  std::vector<bool> layers(config.num_layers);
  for (const TensorSpec& spec : tensors_of(config)) {
    if (spec.is_of_experts()) layers[std::stoul(spec.name.substr(spec.name.find('.') + 1))] = true;
  }
  return layers;
}

inline Result<ModelConfig> parse_text(const std::string& text) {
  SUBBYTE_TRY(const json::Value value, json::parse(text, "config.json"));
  SUBBYTE_TRY(const json::Object object, json::Object::of(value, "config.json"));
  return parse_model_config(object);
}

/// `base` with `changes` merged in: null takes a key away.
inline json::Value merged(json::Value base, const json::Value& changes) {
  if (!changes.is_object()) return changes;
  if (!base.is_object()) base = json::Value::object();
  for (const auto& [key, change] : changes.items()) {
    if (change.is_null()) {
      base.erase(key);
    } else {
      base[key] = merged(base.at(key), change);
    }
  }
  return base;
}

inline Result<ModelConfig> changed(const char* base, const std::string& changes) {
  return parse_text(merged(json_of(base), json_of(changes)).text());
}

inline std::string code(const char* base, const std::string& changes) {
  const auto config = changed(base, changes);
  return config.ok() ? "" : std::string(config.error().code);
}

}  // namespace subbyte::testing
