#include "models/self_attention.h"

#include <algorithm>
#include <cmath>

#include "ops/attention.h"
#include "ops/linear.h"

namespace subbyte {
namespace {

constexpr int64_t kHeadGrain = 32;  // heads that are worth a thread

/// Normalises and turns the heads of q in place and those of k on their way to the cache, where v
/// goes too.
void prepare_heads(Execution& execution, const SelfAttention& weights, float eps,
                   const ModelConfig& config, int64_t layer, KvCache& cache,
                   const Workspace& work) {
  const cpu::VectorKernels& kernels = *execution.kernels().vectors;
  const int64_t dim = config.head_dim;
  const int64_t kv_heads = config.num_kv_heads;
  const int64_t each = config.num_heads + 2 * kv_heads;  // heads of a token
  const float* q_norm = weights.q_norm.empty() ? nullptr : weights.q_norm.data();
  const float* k_norm = weights.k_norm.empty() ? nullptr : weights.k_norm.data();
  execution.pool().parallel_for(
      work.tokens * each, kHeadGrain, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t t = i / each;
          const int64_t head = i % each;
          const float* cos = work.cos.data() + t * (dim / 2);
          const float* sin = work.sin.data() + t * (dim / 2);
          if (head < config.num_heads) {
            float* q = work.q.data() + (t * config.num_heads + head) * dim;
            kernels.norm_rotate(q, q, q_norm, eps, cos, sin, dim);
            continue;
          }
          const int64_t kv_head = (head - config.num_heads) % kv_heads;
          const int64_t from = (t * kv_heads + kv_head) * dim;
          const int64_t position = cache.size() + t;
          if (head < config.num_heads + kv_heads) {
            kernels.norm_rotate(cache.key(layer, kv_head, position), work.k.data() + from, k_norm,
                                eps, cos, sin, dim);
          } else {
            std::copy_n(work.v.data() + from, dim, cache.value(layer, kv_head, position));
          }
        }
      });
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

void run_self_attention(Execution& execution, const SelfAttention& weights, float eps,
                        const ModelConfig& config, int64_t layer, KvCache& cache, Workspace& work) {
  const LinearProduct projections[] = {
      {work.q, work.h, work.tokens, &weights.q.matrix.view, weights.q.bias},
      {work.k, work.h, work.tokens, &weights.k.matrix.view, weights.k.bias},
      {work.v, work.h, work.tokens, &weights.v.matrix.view, weights.v.bias}};
  linear_group(execution, projections);
  prepare_heads(execution, weights, eps, config, layer, cache, work);
  const AttentionShape shape = {config.num_heads, config.num_kv_heads, config.head_dim,
                                1.0f / std::sqrt(static_cast<float>(config.head_dim)),
                                config.windows[layer]};
  attention(execution, work.mixed, work.q, cache.layer(layer), cache.size(), shape, weights.sinks);
  linear(execution, work.delta, work.mixed, work.tokens, weights.o.matrix.view, weights.o.bias);
}

}  // namespace subbyte
