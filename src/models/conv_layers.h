#pragma once
// Models most of whose layers are short convolutions between two gates, and the others attention by
// groups with norms of each head: what config.json and GGUF files say of them, and their step.

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "json/strict_json.h"
#include "models/gguf_architecture.h"
#include "models/model_config.h"
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

/// Adds layer_types: layers without heads of keys, of `key`, are convolutions.
void add_conv_layers(const GgufModel& model, std::string_view key, json::Value& config);

/// Its inverse: adds `key`, 0 for convolutions.
void add_conv_keys(const std::vector<bool>& conv_layers, std::string_view key, int64_t kv_heads,
                   GgufKeys& keys);

}  // namespace subbyte
