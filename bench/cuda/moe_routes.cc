#include "bench/cuda/moe_routes.h"

#include <algorithm>
#include <numeric>

#include "base/random.h"

namespace subbyte::bench {

int64_t MoeRoutes::used_experts() const {
  return std::ssize(counts) - std::count(counts.begin(), counts.end(), 0);
}

MoeRoutes draw_routes(int64_t tokens, int64_t experts, int64_t top_k, uint64_t seed) {
  Random random(seed);
  std::vector<float> means(experts);
  for (float& mean : means) mean = static_cast<float>(random.normal());
  MoeRoutes routes;
  routes.logits.resize(tokens * experts);
  routes.counts.resize(experts);
  std::vector<int64_t> best(experts);
  for (int64_t token = 0; token < tokens; ++token) {
    float* const logits = &routes.logits[token * experts];
    for (int64_t e = 0; e < experts; ++e) {
      logits[e] = means[e] + static_cast<float>(random.normal());
    }
    std::iota(best.begin(), best.end(), 0);
    std::partial_sort(best.begin(), best.begin() + top_k, best.end(),
                      [&](int64_t a, int64_t b) { return logits[a] > logits[b]; });
    for (int64_t i = 0; i < top_k; ++i) ++routes.counts[best[i]];
  }
  return routes;
}

}  // namespace subbyte::bench
