#pragma once
// Products of the experts of a layer for few tokens each, or without wgmma: small_m once for each
// tile of tokens of an expert. (Many tokens: large_m.cuh.)
//
//   blockIdx.y   a tile: at most 8, 16 or 64 routes of one expert, or none
//   blockIdx.x   a part of the strips of that expert, as small_m divides them, without split-K
//
// Which expert a tile has is known on the device alone (ops/route.h), so the grid has as many tiles
// as there can be, and CTAs without routes leave at once. Rows of x and y are found through the
// routes: nothing is gathered before or scattered after.

#include "kernels/cuda/experts/of_expert.cuh"
#include "kernels/cuda/small_m/kernel.cuh"

namespace subbyte::cuda {

template <class Number, class Decoder, int kGroups, int kTokens8>
__global__ void __launch_bounds__(small_m_warps(kTokens8 * 8) * kLanes, 1)
    experts_kernel(const __grid_constant__ ExpertArguments a,
                   const __grid_constant__ SmallMPartition p) {
  extern __shared__ __align__(128) uint8_t shared[];
  __shared__ LinearArguments linear;
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  const ExpertTile tile = a.tiles[blockIdx.y];
  if (tile.count == 0) return;
  if (threadIdx.x == 0) linear = of_expert(a, tile);
  __syncthreads();
  SmallMWork work = small_m_work(p, 8 * kTokens8);
  work.first_token = tile.first;
  SmallMCta<Number, Decoder, kGroups, kTokens8, RoutedRows>(linear, p, shared, work,
                                                            {a.x_rows, a.y_rows})
      .run();
}

}  // namespace subbyte::cuda
