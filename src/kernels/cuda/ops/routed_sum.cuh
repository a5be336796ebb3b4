#pragma once
// The sum of what the experts of a token return (RoutedSum).

#include "kernels/cuda/ops/elements.cuh"
#include "kernels/cuda/ops/route.h"

namespace subbyte::cuda {

/// Of elements col to col + 7 of a token, 16-byte aligned, of 16 bits, before it is rounded. Loads
/// of several routes are on their way at once, which a branch on their type would prevent.
__device__ __forceinline__ void add_routes_8(Element element, const RoutedSum& routes, int64_t cols,
                                             int64_t token, int64_t col, float (&sums)[8]) {
  constexpr int kAtOnce = 5;
  const int top_k = static_cast<int>(routes.top_k);
  const int64_t begin = token * top_k;
#pragma unroll
  for (float& sum : sums) sum = 0;
  for (int first = 0; first < top_k; first += kAtOnce) {
    float weights[kAtOnce];
    uint4 values[kAtOnce];
#pragma unroll
    for (int r = 0; r < kAtOnce; ++r) {
      const int64_t route = begin + min(first + r, top_k - 1);
      weights[r] = routes.weights[route];
      values[r] = *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(routes.outputs) +
                                                  route * cols + col);
    }
#pragma unroll
    for (int r = 0; r < kAtOnce; ++r) {
      if (first + r >= top_k) break;
      const uint32_t pairs[4] = {values[r].x, values[r].y, values[r].z, values[r].w};
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const auto bits = static_cast<uint16_t>(pairs[j / 2] >> 16 * (j % 2));
        sums[j] = fmaf(weights[r], to_float(element, bits), sums[j]);
      }
    }
  }
}

__device__ __forceinline__ float add_routes(Element element, const RoutedSum& routes, int64_t cols,
                                            int64_t token, int64_t col) {
  float sum = 0;
  for (int64_t route = token * routes.top_k; route < (token + 1) * routes.top_k; ++route) {
    sum =
        fmaf(routes.weights[route], load_element(element, routes.outputs, route * cols + col), sum);
  }
  return sum;
}

}  // namespace subbyte::cuda
