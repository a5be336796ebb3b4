#include "models/self_attention.h"

#include <cmath>

#include "ops/attention.h"
#include "ops/linear.h"

namespace subbyte {
namespace {

void normalise(std::span<float> heads, std::span<const float> weight, const Norm& like) {
  if (!weight.empty()) rms_norm(heads, heads, {weight, like.eps, like.order, like.activations});
}

}  // namespace

Result<SelfAttention> load_projections(WeightLoader& loader, const std::string& prefix,
                                       const ModelConfig& config, Bias bias) {
  const int64_t hidden = config.hidden_size;
  const int64_t q_size = config.num_heads * config.head_dim;
  const int64_t kv_size = config.num_kv_heads * config.head_dim;
  SelfAttention weights;
  SUBBYTE_TRY(weights.q, loader.linear(prefix + "q_proj", q_size, hidden, bias));
  SUBBYTE_TRY(weights.k, loader.linear(prefix + "k_proj", kv_size, hidden, bias));
  SUBBYTE_TRY(weights.v, loader.linear(prefix + "v_proj", kv_size, hidden, bias));
  SUBBYTE_TRY(weights.o, loader.linear(prefix + "o_proj", hidden, q_size, bias));
  return weights;
}

void run_self_attention(Execution& execution, const SelfAttention& weights, const Norm& input_norm,
                        const Rope& rope, const ModelConfig& config, int64_t layer, KvCache& cache,
                        std::span<float> x) {
  const int64_t tokens = static_cast<int64_t>(x.size()) / config.hidden_size;
  const int64_t q_size = config.num_heads * config.head_dim;
  const int64_t kv_size = config.num_kv_heads * config.head_dim;
  std::vector<float> h(x.size()), q(tokens * q_size), k(tokens * kv_size), v(tokens * kv_size);

  rms_norm(h, x, input_norm);
  linear(execution, q, h, tokens, weights.q.matrix.view, weights.q.bias);
  linear(execution, k, h, tokens, weights.k.matrix.view, weights.k.bias);
  linear(execution, v, h, tokens, weights.v.matrix.view, weights.v.bias);
  normalise(q, weights.q_norm, input_norm);
  normalise(k, weights.k_norm, input_norm);
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t position = cache.size() + t;
    rope.apply(std::span(q).subspan(t * q_size, q_size), position);
    rope.apply(std::span(k).subspan(t * kv_size, kv_size), position);
    cache.store(layer, position, &k[t * kv_size], &v[t * kv_size]);
  }
  const AttentionShape shape = {config.num_heads, config.num_kv_heads, config.head_dim,
                                1.0f / std::sqrt(static_cast<float>(config.head_dim)),
                                config.windows[layer]};
  std::vector<float> mixed(q.size());
  attention(execution, mixed, q, cache.layer(layer), cache.size(), shape, weights.sinks);
  linear(execution, h, mixed, tokens, weights.o.matrix.view, weights.o.bias);
  execution.kernels().axpy(x.data(), 1.0f, h.data(), static_cast<int64_t>(x.size()));
}

}  // namespace subbyte
