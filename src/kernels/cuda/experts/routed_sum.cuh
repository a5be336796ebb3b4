#pragma once
// The sum of what the experts of a token return (RoutedSum).

#include "kernels/cuda/common/elements.cuh"
#include "kernels/cuda/common/ptx.cuh"
#include "kernels/cuda/experts/route.h"

namespace subbyte::cuda {

/// Of elements col to col + 7 of a token, 16-byte aligned, of 16 bits, before it is rounded; by
/// CTAs of kThreads. Several routes are on their way at once, through shared memory: as loads to
/// registers the assembler puts each before its use, one after the other.
template <int kThreads>
__device__ __forceinline__ void add_routes_8(Element element, const RoutedSum& routes, int64_t cols,
                                             int64_t token, int64_t col, float (&sums)[8]) {
  constexpr int kAtOnce = 5;
  alignas(16) __shared__ uint16_t arrived[kAtOnce][kThreads][8];
  const int top_k = static_cast<int>(routes.top_k);
  const int64_t begin = token * top_k;
  const auto* const outputs = static_cast<const uint16_t*>(routes.outputs);
#pragma unroll
  for (float& sum : sums) sum = 0;
  for (int first = 0; first < top_k; first += kAtOnce) {
#pragma unroll
    for (int r = 0; r < kAtOnce; ++r) {
      const int64_t route = begin + min(first + r, top_k - 1);
      cp_async<16>(shared_address(arrived[r][threadIdx.x]), outputs + route * cols + col);
    }
    cp_async_commit();
    cp_async_wait<0>();
#pragma unroll
    for (int r = 0; r < kAtOnce; ++r) {
      if (first + r >= top_k) break;
      const float weight = routes.weights[begin + first + r];
      float values[8];
      load_8(element, arrived[r][threadIdx.x], 0, values);
#pragma unroll
      for (int j = 0; j < 8; ++j) sums[j] = fmaf(weight, values[j], sums[j]);
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
