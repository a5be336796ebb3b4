#include "models/self_attention.h"

#include <cmath>

namespace subbyte {

Result<SelfAttention> load_projections(WeightLoader& loader, const std::string& prefix,
                                       const ModelConfig& config, Bias bias) {
  const int64_t hidden = config.hidden_size;
  const int64_t q_size = config.num_heads * config.head_dim;
  const int64_t kv_size = config.num_kv_heads * config.head_dim;
  SelfAttention weights;
  SUBBYTE_TRY(weights.qkv, loader.joined({{prefix + "q_proj", q_size},
                                          {prefix + "k_proj", kv_size},
                                          {prefix + "v_proj", kv_size}},
                                         hidden, bias));
  SUBBYTE_TRY(weights.o, loader.linear(prefix + "o_proj", hidden, q_size, bias));
  weights.norms.eps = config.rms_norm_eps;
  return weights;
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
