#include "models/model_shape.h"

#include "models/model_family.h"

namespace subbyte {

json::Value usual_config(const ModelType& type, const ModelShape& shape, int64_t layers) {
  return {{"architectures", json::Value::array({type.architecture})},
          {"attention_bias", false},
          {"attention_dropout", 0.0},
          {"head_dim", shape.head_dim},
          {"hidden_act", "silu"},
          {"hidden_size", shape.hidden},
          {"initializer_range", 0.02},
          {"intermediate_size", shape.intermediate},
          {"max_position_embeddings", shape.positions},
          {"model_type", type.name},
          {"num_attention_heads", shape.heads},
          {"num_hidden_layers", layers},
          {"num_key_value_heads", shape.kv_heads},
          {"rms_norm_eps", type.defaults.rms_norm_eps},
          {"tie_word_embeddings", shape.tied},
          {"use_cache", true},
          {"vocab_size", shape.vocabulary}};
}

}  // namespace subbyte
