#pragma once
// The attention block that the families of models share: projections, optional norms of queries
// and keys per head, rotary embedding, the cache, attention with optional sinks, output.

#include <string>

#include "models/model_config.h"
#include "models/model_weights.h"
#include "ops/backend.h"

namespace subbyte {

struct SelfAttention {
  Weight qkv;       // [heads*dim, then kv_heads*dim twice][hidden]
  Weight o;         // [hidden][heads*dim]
  HeadNorms norms;  // of queries and keys, if the family has them
  Vector sinks;     // [heads], if the family has them
};

/// The activations of a step between the operations of such a block; all layers use the same.
struct AttentionTensors {
  AttentionTensors(Backend& backend, const ModelConfig& config);

  Tensor qkv;
  Tensor attn_out;
};

/// What TensorList::attention() lists under "layers.N.self_attn.", as far as the family has it.
SelfAttention self_attention_of(const ModelWeights& weights, const std::string& prefix,
                                const ModelConfig& config);

/// y = o(attention(rope(norm(q h)), rope(norm(k h)), v h)). Stores keys and values of `layer`.
void run_self_attention(Backend& backend, const SelfAttention& weights, const Rope& rope,
                        const ModelConfig& config, int64_t layer, const AttentionTensors& tensors,
                        Tensor y, Tensor h);

}  // namespace subbyte
