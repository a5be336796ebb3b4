#pragma once

#include "kernels/cuda/common/rows.cuh"
#include "kernels/cuda/experts/arguments.h"

namespace subbyte::cuda {

/// What the product of the expert of a tile is called with.
__device__ inline LinearArguments of_expert(const ExpertArguments& a, const ExpertTile& tile) {
  LinearArguments linear = a.linear;
  WeightArguments& w = linear.weights;
  const bool is_shared = tile.expert == a.shared.number;
  const int64_t at = is_shared ? a.shared.at : tile.expert * a.expert_bytes;
  w.codes += at;
  w.scales += at;
  if (w.zeros != nullptr) w.zeros += at;
  if (w.gather != nullptr) w.gather += at / 4;
  if (w.vectors != nullptr) w.vectors += at / 4;
  w.gain = is_shared ? a.shared.gain : a.gains[tile.expert];
  w.up_gain = is_shared ? a.shared.up_gain : a.up_gains[tile.expert];
  if (linear.bias != nullptr) {
    linear.bias = static_cast<const uint16_t*>(linear.bias) + int64_t{tile.expert} * w.rows;
  }
  linear.m = tile.first + tile.count;
  return linear;
}

}  // namespace subbyte::cuda
