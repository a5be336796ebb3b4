#pragma once
// The factor of a query.

#include "kernels/cuda/attention/rotate.h"

namespace subbyte::cuda {

__device__ inline float query_factor(const QueryGrowth& growth, int position) {
  const int steps = (position + growth.first) / growth.step;
  return 1.0f + growth.beta * log1pf(static_cast<float>(steps));
}

}  // namespace subbyte::cuda
