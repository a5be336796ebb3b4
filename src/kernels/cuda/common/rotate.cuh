#pragma once
// The Hadamard rotation (formats/rotation.h) of 256 neighbours, eight in each lane of a warp.

#include "kernels/gpu/dialect.h"
#include "kernels/gpu/tile_order.h"

namespace subbyte::cuda {

inline constexpr int kRotatedOfLane = 8;

/// Rotates runs of `rotation` numbers, 0 for none: butterflies from neighbours outwards, as
/// rotate() has them.
__device__ __forceinline__ void rotate_in_warp(float (&x)[kRotatedOfLane], int lane, int rotation,
                                               float factor) {
  if (rotation == 0) return;
#pragma unroll
  for (int step = 1; step < kRotatedOfLane; step *= 2) {
#pragma unroll
    for (int i = 0; i < kRotatedOfLane; ++i) {
      if ((i & step) != 0) continue;
      const float low = x[i];
      const float high = x[i + step];
      x[i] = low + high;
      x[i + step] = low - high;
    }
  }
#pragma unroll 1
  for (int distance = 1; distance * kRotatedOfLane < rotation; distance *= 2) {
    const bool is_high = (lane & distance) != 0;
#pragma unroll
    for (int i = 0; i < kRotatedOfLane; ++i) {
      const float other = __shfl_xor_sync(~0u, x[i], distance);
      x[i] = is_high ? other - x[i] : x[i] + other;
    }
  }
#pragma unroll
  for (int i = 0; i < kRotatedOfLane; ++i) x[i] *= factor;
}

}  // namespace subbyte::cuda
