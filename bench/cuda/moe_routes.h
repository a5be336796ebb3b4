#pragma once
// Which experts the tokens of a measurement go to.

#include <cstdint>
#include <vector>

namespace subbyte::bench {

struct MoeRoutes {
  std::vector<float> logits;    // [tokens][experts]
  std::vector<int64_t> counts;  // tokens of each expert

  int64_t used_experts() const;
};

/// Uneven, as routers are: an expert's logits have a mean that is drawn from the same normal
/// distribution as what the tokens add. The busiest of 32 experts gets about five times its share.
MoeRoutes draw_routes(int64_t tokens, int64_t experts, int64_t top_k, uint64_t seed);

}  // namespace subbyte::bench
