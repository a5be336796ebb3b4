#pragma once
// Models most of whose layers are short convolutions between two gates, and the others attention by
// groups with norms of each head: what config.json and GGUF files say of them, and their step.

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "json/strict_json.h"
#include "models/config_keys.h"
#include "models/gguf_architecture.h"
#include "models/model_config.h"
#include "models/model_shape.h"
#include "models/step_recorder.h"

namespace subbyte {

/// Most taps of their filters.
inline constexpr int64_t kMaxConvTaps = 16;

/// Names of GGUF files, of all blocks but experts.
inline constexpr GgufTensorRule kConvGgufTensors[] = {
    {"token_embd_norm", "model.embedding_norm"},
    {"output_norm", "model.embedding_norm"},
    {"attn_norm", "operator_norm"},
    {"attn_q_norm", "self_attn.q_layernorm"},
    {"attn_k_norm", "self_attn.k_layernorm"},
    {"attn_output", "self_attn.out_proj"},
    {"shortconv.conv", "conv.conv", GgufChange::kFilters},
    {"shortconv.in_proj", "conv.in_proj"},
    {"shortconv.out_proj", "conv.out_proj"},
    {"ffn_norm", "ffn_norm"},
    {"ffn_gate", "feed_forward.w1"},
    {"ffn_up", "feed_forward.w3"},
    {"ffn_down", "feed_forward.w2"},
};

/// Keys of config.json, of all blocks but experts (read_conv_layers()), and those of synthesized
/// models.
inline constexpr ConfigKey kConvKeys[] = {
    SUBBYTE_CONFIG_KEY("", "norm_eps", kComputed, "", "absent: 1e-5"),
    SUBBYTE_CONFIG_KEY("", "tie_embedding", kComputed, "", "tie_word_embeddings, older"),
    SUBBYTE_CONFIG_KEY("", "conv_L_cache", kComputed, "", "taps of the filters; absent: 3"),
    SUBBYTE_CONFIG_KEY("", "conv_bias", kComputed, "", "absent: false"),
    SUBBYTE_CONFIG_KEY("", "attention_bias", kIgnored, "", "there are no biases"),
    SUBBYTE_CONFIG_KEY("", "rms_norm_eps", kIgnored, "", "norm_eps says it"),
    SUBBYTE_CONFIG_KEY("", "use_pos_enc", kIgnored, "", "all heads turn"),
};
inline constexpr ShapeKeys kConvShape = {
    "", "", R"({"attention_bias": "$none", "head_dim": "$none", "hidden_act": "$none",
                "rms_norm_eps": "$none", "conv_L_cache": 3, "conv_bias": false, "norm_eps": 1e-5,
                "rope_theta": 1000000.0})"};

struct ConvLayers {
  std::vector<bool> are_conv;  // [num_layers]
  int64_t taps = 3;
  bool has_bias = false;

  bool operator==(const ConvLayers&) const = default;
};

/// Reads the layers: layer_types, else all but those of full_attn_idxs, else none; and what such
/// models have keys of their own for: norm_eps and tie_embedding go to `model`. Codes: json.*,
/// config.layer_types.
Result<ConvLayers> read_conv_layers(const json::Object& config, ModelConfig& model);

/// Records a step with the names of such models; `usual` says what blocks come second.
void record_conv_layers(const ModelConfig& config, StepRecorder& step, const ConvLayers& layers,
                        UsualStep usual = {});

/// Adds layer_types: layers without heads of keys are convolutions. Code gguf.value.
Status add_conv_layers(const GgufModel& model, json::Value& config);

}  // namespace subbyte
