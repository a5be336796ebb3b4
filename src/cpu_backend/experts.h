#pragma once
// Mixture of experts.

#include <cstdint>
#include <span>

#include "base/routing.h"
#include "kernels/cpu/execution.h"
#include "ops/weights.h"

namespace subbyte {

/// An expert that a token goes to, and its weight; the best first.
struct Route {
  int32_t expert;
  float weight;
};

/// The rule of a router, and what it reads besides logits.
struct RouterNumbers {
  Routing rule = {};
  std::span<const float> biases = {};   // [experts], or empty
  std::span<const float> factors = {};  // the same, of the weights
};

/// Picks `top_k` for each row of logits [tokens][experts]. routes: [tokens][top_k].
void route_top_k(std::span<Route> routes, std::span<const float> logits, int64_t experts,
                 int64_t top_k, const RouterNumbers& router);

/// y[token] = sum over its routes of weight * (down(gate(gate_up(x))) + bias), or with
/// `weights_inputs` of down(gate(gate_up(weight * x))) + bias. Experts without tokens are not
/// touched; each other expert is read once for all of its tokens. The sum of a token runs over its
/// routes in their order. x, y: [tokens][hidden]; routes: [tokens][top_k]. Code linear.unsupported.
Status moe(Execution& execution, std::span<float> y, std::span<const float> x,
           std::span<const Route> routes, const ExpertMatrices& experts,
           bool weights_inputs = false);

}  // namespace subbyte
