#pragma once
// What keys mean that config.json does not have: what the configuration class of a type of model
// says in transformers 5.24.

#include <cstdint>

#include "base/status.h"
#include "ops/weights.h"

namespace subbyte {

namespace json {
class Object;
}

/// Which layers have a sliding window where layer_types does not say so.
enum class SlidingRule : uint8_t {
  kNone,
  kFromLayer,   // with use_sliding_window those from max_window_layers on
  kAll,         // with use_sliding_window all; layer_types has to say the same
  kWithWindow,  // all where there is a window; layer_types has to say the same
  kAllBut,      // all but one of each `full_every`, the last
  kOfFamily,    // none slides, and the family reads layer_types by itself
};

struct ConfigDefaults {
  int64_t intermediate_size = -1;         // -1: it must be there; 0: no layer has that
  int64_t vocab = 0;                      // 0: it must be there
  int64_t heads = 0;                      // the same
  int64_t kv_heads = 0;                   // 0: num_attention_heads
  int64_t head_dim = 0;                   // 0: hidden_size / num_attention_heads
  const char* head_dim_key = "head_dim";  // or of what turns of a head, where parts of it are apart
  int64_t max_positions = 2048;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000;
  double rotary_fraction = 1;            // of a head, that turns
  const char* rotary_dim_key = nullptr;  // that says how much of one turns
  const char* rope_section = nullptr;    // rope_parameters where there is no section
  bool attention_bias = false;
  bool tie_word_embeddings = false;
  int32_t eos = -1;  // eos_token_id; -1: none
  const char* activation_key = "hidden_act";
  Gate gate = Gate::kSilu;  // the only one that it has
  SlidingRule sliding = SlidingRule::kNone;
  int64_t sliding_window = 0;
  int64_t first_sliding_layer = 0;  // max_window_layers
  int64_t full_every = 2;
  const char* full_every_key = nullptr;  // where config.json may say it
  bool has_sliding_rope = false;         // layers that slide have a rope of their own
  /// Counts layers by a list of them, where num_hidden_layers is absent; 0: there is none.
  Result<int64_t> (*count_layers)(const json::Object& config) = nullptr;
};

}  // namespace subbyte
