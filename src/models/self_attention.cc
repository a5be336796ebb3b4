#include "models/self_attention.h"

#include <cmath>

namespace subbyte {

SelfAttention self_attention_of(const ModelWeights& weights, const std::string& prefix,
                                const ModelConfig& config) {
  SelfAttention block;
  block.qkv = weights.matrix(prefix + "qkv_proj");
  block.o = weights.matrix(prefix + "o_proj");
  block.norms = {weights.vector(prefix + "q_norm"), weights.vector(prefix + "k_norm"),
                 config.rms_norm_eps};
  block.sinks = weights.vector(prefix + "sinks");
  return block;
}

AttentionTensors::AttentionTensors(Backend& backend, const ModelConfig& config)
    : qkv(backend.tensor((config.num_heads + 2 * config.num_kv_heads) * config.head_dim)),
      attn_out(backend.tensor(config.num_heads * config.head_dim)) {}

void run_self_attention(Backend& backend, const SelfAttention& weights, const Rope& rope,
                        const ModelConfig& config, int64_t layer, const AttentionTensors& tensors,
                        Tensor y, Tensor h) {
  const AttentionShape shape = {config.num_heads, config.num_kv_heads, config.head_dim,
                                1.0f / std::sqrt(static_cast<float>(config.head_dim)),
                                config.windows[layer]};
  backend.linear(tensors.qkv, h, weights.qkv);
  backend.rotate_and_store(tensors.qkv, weights.norms, rope, shape, layer);
  backend.attend(tensors.attn_out, tensors.qkv, shape, layer, weights.sinks);
  backend.linear(y, tensors.attn_out, weights.o);
}

}  // namespace subbyte
