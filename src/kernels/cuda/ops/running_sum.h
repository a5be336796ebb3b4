#pragma once
// Sums over the tokens of each sequence: the simplest of the layers that keep a state.

#include "kernels/cuda/ops/elements.h"

namespace subbyte::cuda {

/// y[t] = state + x[first] + ... + x[t], one after the other in float32; the last one is the new
/// state.
struct RunningSumCall {
  void* y = nullptr;  // [tokens][cols]
  const void* x = nullptr;
  Element element = Element::kF16;  // of both
  int64_t cols = 0;
  float* states = nullptr;   // of the layer, state 0
  int64_t state_stride = 0;  // floats from a state to the next
  const StatePart* parts = nullptr;
  int64_t num_parts = 0;
};

/// Errors are left to cudaGetLastError().
void run_running_sum(const RunningSumCall& call, Stream stream);

}  // namespace subbyte::cuda
