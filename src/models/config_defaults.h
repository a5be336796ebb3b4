#pragma once
// What keys mean that config.json does not have: what the configuration class of the family says
// in transformers 5.24.

#include <cstdint>
#include <string_view>

#include "ops/rope.h"

namespace subbyte {

/// Which layers have a sliding window where layer_types does not say so.
enum class SlidingRule : uint8_t {
  kFromLayer,  // with use_sliding_window those from max_window_layers on
  kAll,        // with use_sliding_window all; layer_types has to say the same
  kEvenLayers,
};

struct ConfigDefaults {
  std::string_view model_type;
  int64_t kv_heads;
  int64_t head_dim;  // 0: hidden_size / num_attention_heads
  int64_t max_positions;
  double rms_norm_eps;
  double rope_theta;
  RopeScaling rope_scaling;
  bool attention_bias;
  SlidingRule sliding;
  int64_t sliding_window;
  int64_t first_sliding_layer;  // max_window_layers
};

/// Of a family that this version runs; code config.model_type is its caller's.
const ConfigDefaults* find_defaults(std::string_view model_type);

}  // namespace subbyte
