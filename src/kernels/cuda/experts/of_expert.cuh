#pragma once

#include "kernels/cuda/common/rows.cuh"
#include "kernels/cuda/experts/arguments.h"

namespace subbyte::cuda {

/// The last factors of the weights of an expert.
__device__ inline void set_gains(LinearArguments& linear, const ExpertArguments& a, int expert) {
  const bool is_shared = expert == a.shared.number;
  linear.weights.gain = is_shared ? a.shared.gain : a.gains[expert];
  linear.weights.up_gain = is_shared ? a.shared.up_gain : a.up_gains[expert];
}

/// What the product of the expert of a tile is called with, but for its gains.
__device__ inline LinearArguments of_expert(const ExpertArguments& a, const ExpertTile& tile) {
  LinearArguments linear = a.linear;
  WeightArguments& w = linear.weights;
  const int64_t at = tile.expert == a.shared.number ? a.shared.at : tile.expert * a.expert_bytes;
  w.codes += at;
  w.scales += at;
  if (w.zeros != nullptr) w.zeros += at;
  if (w.gather != nullptr) w.gather += at / 4;
  if (w.vectors != nullptr) w.vectors += at / 4;
  if (linear.bias != nullptr) {
    linear.bias = static_cast<const uint16_t*>(linear.bias) + int64_t{tile.expert} * w.rows;
  }
  linear.m = tile.first + tile.count;
  return linear;
}

}  // namespace subbyte::cuda
