#pragma once
// Adds what parts of the keys, of warps or of CTAs, give for a query.

#include "kernels/cuda/common/elements.cuh"

namespace subbyte::cuda {

/// Two elements of a query, 32 apart, its largest score and its sum.
struct MergedParts {
  float values[2] = {};
  float largest = -INFINITY;
  float sum = 0;
};

static __device__ float largest_of_warp(float value) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(~0u, value, distance));
  }
  return value;
}

/// By a warp, in the order of the parts. Lane i has the largest score and the sum of part i, whose
/// values are `stride` after those of the part before. `first`: this lane's first element.
template <class Load>
__device__ MergedParts merge_parts(int head_dim, int parts, float own, float own_sum,
                                   const float* from, int stride, int first, const Load& load) {
  MergedParts all;
  all.largest = largest_of_warp(own);
  const float factor = exp2f(own - (all.largest == -INFINITY ? 0 : all.largest));
  all.sum = sum_of_warp(own_sum * factor);
  // The lanes stay together: who has no element loads the first.
  const float* const low = from + (first < head_dim ? first : 0);
  const float* const high = from + (first + kLanes < head_dim ? first + kLanes : 0);
#pragma unroll 8
  for (int i = 0; i < parts; ++i) {
    const float of_part = __shfl_sync(~0u, factor, i);
    all.values[0] = fmaf(load(low + i * stride), of_part, all.values[0]);
    all.values[1] = fmaf(load(high + i * stride), of_part, all.values[1]);
  }
  return all;
}

}  // namespace subbyte::cuda
