#pragma once
// Mixture of experts.

#include <cstdint>
#include <span>

#include "kernels/cpu/execution.h"
#include "ops/weights.h"

namespace subbyte {

/// An expert that a token goes to, and its weight; the best first.
struct Route {
  int32_t expert;
  float weight;
};

/// Picks the `top_k` largest of each row of logits [tokens][experts] (the lower index on ties).
/// routes: [tokens][top_k].
void route_top_k(std::span<Route> routes, std::span<const float> logits, int64_t experts,
                 int64_t top_k, RouteWeights weights);

/// y[token] = sum over its routes of weight * (down(swiglu(gate_up(x))) + bias). Experts without
/// tokens are not touched; each other expert is read once for all of its tokens. The sum of a
/// token runs over its routes in their order. x, y: [tokens][hidden]; routes: [tokens][top_k].
/// Code linear.unsupported.
Status moe(Execution& execution, std::span<float> y, std::span<const float> x,
           std::span<const Route> routes, const ExpertMatrices& experts);

}  // namespace subbyte
