#pragma once
// The attention block that the families of models share: projections, optional norms of queries
// and keys per head, rotary embedding, the cache, attention with optional sinks, output.

#include <optional>
#include <string>
#include <vector>

#include "models/weight_loader.h"
#include "models/workspace.h"
#include "ops/norm.h"

namespace subbyte {

struct SelfAttention {
  Linear q, k, v, o;          // [heads*dim | kv_heads*dim][hidden], o [hidden][heads*dim]
  std::vector<float> q_norm;  // [head_dim], or empty
  std::vector<float> k_norm;  // [head_dim], or empty
  std::vector<float> sinks;   // [heads], or empty
};

/// Loads q, k, v and o of "model.layers.N.self_attn." and leaves the rest to the family.
Result<SelfAttention> load_projections(WeightLoader& loader, const std::string& prefix,
                                       const ModelConfig& config, Bias bias);

/// work.delta = o(attention(rope(norm(q h)), rope(norm(k h)), v h)), h = work.h; the angles are
/// those of `work`. Stores keys and values of layer `layer` behind cache.size(). Queries and keys
/// are normalised with float32 activations and `eps`, where the layer has such norms.
void run_self_attention(Execution& execution, const SelfAttention& weights, float eps,
                        const ModelConfig& config, int64_t layer, KvCache& cache, Workspace& work);

}  // namespace subbyte
