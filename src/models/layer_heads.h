#pragma once
// Layers whose attention differs: those that are full may have heads of their own, whose values may
// be their keys, and the last layers may read the keys and values of earlier ones.

#include <cstdint>

#include "base/status.h"
#include "models/gguf_architecture.h"
#include "models/model_config.h"
#include "models/step_recorder.h"

namespace subbyte {

struct LayerHeads {
  int64_t full_head_dim = 0;     // of layers that are full
  int64_t full_kv_heads = 0;     // of these
  bool values_are_keys = false;  // of these
  int64_t shared_layers = 0;     // the last ones, which read the keys and values of others
  bool are_double_wide = false;  // the blocks of these

  bool operator==(const LayerHeads&) const = default;
};

/// Reads attention_k_eq_v, num_kv_shared_layers, use_double_wide_mlp and the heads of layers that
/// are full: of newer files per_layer_config, else global_head_dim, which is `head_dim` where it is
/// absent, and num_global_key_value_heads. Codes: json.*, config.heads, config.per_layer_config,
/// config.not_computed, config.kv_shared_layers.
Result<LayerHeads> read_layer_heads(const json::Object& config, const ModelConfig& model,
                                    int64_t head_dim);

/// Adds what it reads of a file in GGUF, whose layer_types and num_kv_shared_layers are there:
/// per_layer_config, num_key_value_heads of layers that slide, and intermediate_size. Code
/// gguf.value.
Status add_layer_heads(const GgufModel& model, json::Value& config);

/// The layer whose keys and values `layer` reads: the last one of its kind that has its own; -1:
/// its own.
int64_t source_of_keys(const ModelConfig& config, const LayerHeads& heads, int64_t layer);

/// The inner size of the block of a layer.
int64_t inner_size_of(const ModelConfig& config, const LayerHeads& heads, int64_t layer);

/// The attention of a layer, without a rope. What files have of keys and values that others give is
/// left.
StepRecorder::Attention layer_attention(const ModelConfig& config, const LayerHeads& heads,
                                        int64_t layer, StepRecorder& step);

}  // namespace subbyte
