#pragma once
// Mixture of experts as gpt-oss has it.

#include <cstdint>
#include <span>
#include <vector>

#include "matrix/matrix.h"
#include "ops/execution.h"

namespace subbyte {

/// The experts that one token goes to and their weights, best first.
struct Route {
  int32_t expert;
  float weight;
};

/// Picks the `top_k` largest of each row of logits [tokens][experts] (the lower index on ties) and
/// weights them by a softmax over these alone. routes: [tokens][top_k].
void route_top_k(std::span<Route> routes, std::span<const float> logits, int64_t experts,
                 int64_t top_k);

struct ExpertWeights {
  std::span<const Matrix> gate_up;      // [experts] of [2 * intermediate][hidden], rows alternate
  std::span<const float> gate_up_bias;  // [experts][2 * intermediate]
  std::span<const Matrix> down;         // [experts] of [hidden][intermediate]
  std::span<const float> down_bias;     // [experts][hidden]
  float alpha = 1.702f;                 // of the clamped SwiGLU
  float limit = 7.0f;
};

/// y[token] = sum over its routes of weight * (down(swiglu(gate_up(x))) + bias). Experts without
/// tokens are not touched; each other expert is read once for all of its tokens. The sum of a
/// token runs over its routes in their order. x, y: [tokens][hidden].
void mixture_of_experts(Execution& execution, std::span<float> y, std::span<const float> x,
                        std::span<const Route> routes, int64_t top_k, const ExpertWeights& weights);

}  // namespace subbyte
