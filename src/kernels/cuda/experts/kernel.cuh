#pragma once
// Products of the experts of a layer: small_m once for each tile of tokens of an expert.
//
//   blockIdx.y   a tile: at most 8, 16 or 64 routes of one expert, or none
//   blockIdx.x   a part of the strips of that expert, as small_m divides them, without split-K
//
// Which expert a tile has is known on the device alone (ops/route.h), so the grid has as many tiles
// as there can be, and CTAs without routes leave at once. Rows of x and y are found through the
// routes: nothing is gathered before or scattered after.

#include "kernels/cuda/experts/arguments.h"
#include "kernels/cuda/small_m/kernel.cuh"

namespace subbyte::cuda {

struct RoutedRows {
  const int32_t* x;
  const int32_t* y;

  __device__ int64_t of_x(int64_t token) const { return x != nullptr ? x[token] : token; }
  __device__ int64_t of_y(int64_t token) const { return y != nullptr ? y[token] : token; }
};

__device__ inline LinearArguments of_expert(const ExpertArguments& a, const ExpertTile& tile) {
  LinearArguments linear = a.linear;
  WeightArguments& w = linear.weights;
  const int64_t at = tile.expert * a.expert_bytes;
  w.codes += at;
  w.scales += at;
  if (w.zeros != nullptr) w.zeros += at;
  if (w.gather != nullptr) w.gather += at / 4;
  w.gain = a.gains[tile.expert];
  if (linear.bias != nullptr) {
    linear.bias = static_cast<const uint16_t*>(linear.bias) + int64_t{tile.expert} * w.rows;
  }
  linear.m = tile.first + tile.count;
  return linear;
}

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
