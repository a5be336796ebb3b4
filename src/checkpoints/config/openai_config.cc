#include "checkpoints/config/openai_config.h"

#include <cstdint>

namespace subbyte {
namespace {

constexpr const char* kRampKey = "rope_ntk_beta";
constexpr uint64_t kMaxPositions = uint64_t{1} << 32;  // what is more is refused as it is
constexpr double kMaxFactor = 1e6;

json::Value value_of(const json::Value& config, const char* key, json::Value absent) {
  const auto found = config.find(key);
  return found == nullptr ? std::move(absent) : *found;
}

/// Positions after scaling; those before it where the two are no sizes.
json::Value scaled_positions(const json::Value& positions, const json::Value& factor) {
  const bool sizes = positions.is_number_unsigned() && factor.is_number() &&
                     positions.get<uint64_t>() <= kMaxPositions && factor.get<double>() >= 1 &&
                     factor.get<double>() <= kMaxFactor;
  if (!sizes) return positions;
  return static_cast<uint64_t>(positions.get<double>() * factor.get<double>());
}

}  // namespace

bool is_openai_config(const json::Value& config) {
  return config.is_object() && !config.contains("model_type") && config.contains(kRampKey);
}

json::Value openai_config(const json::Value& config) {
  json::Value result = {{"model_type", kOpenAiContainer},
                        {"attention_bias", true},
                        {"tie_word_embeddings", false},
                        {"torch_dtype", "bfloat16"}};
  for (const char* key : {"hidden_size", "intermediate_size", "num_hidden_layers",
                          "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size",
                          "sliding_window", "swiglu_limit", "rope_theta", "experts_per_token"}) {
    if (config.contains(key)) result[key] = config[key];
  }
  if (config.contains("num_experts")) result["num_local_experts"] = config["num_experts"];
  if (!config.contains("rope_theta")) result["rope_theta"] = 150000;
  const json::Value positions = value_of(config, "initial_context_length", 4096);
  const json::Value factor = value_of(config, "rope_scaling_factor", 32);
  result["max_position_embeddings"] = scaled_positions(positions, factor);
  result["rope_scaling"] = {{"rope_type", "yarn"},
                            {"factor", factor},
                            {"beta_fast", config[kRampKey]},
                            {"beta_slow", value_of(config, "rope_ntk_alpha", 1)},
                            {"truncate", false},
                            {"original_max_position_embeddings", positions}};
  result["quantization_config"] = {
      {"quant_method", "mxfp4"},
      {"modules_to_not_convert",
       json::Value::array({"model.layers.*.self_attn", "model.layers.*.mlp.router",
                           "model.embed_tokens", "lm_head"})}};
  return result;
}

}  // namespace subbyte
