#pragma once
// The arguments of products of experts: plain data, passed by value. Shared by host and device.

#include "kernels/cuda/common/arguments.h"
#include "kernels/cuda/experts/parts.h"

namespace subbyte::cuda {

/// Routes [first, first + count) in the order of the experts, all of one expert. count 0: none.
struct ExpertTile {
  int32_t expert;
  int32_t first;
  int32_t count;
};

/// The expert after the last one, which has their format and every token: its bytes are `at` bytes
/// after those of expert 0. number -1: there is none.
struct SharedExpert {
  int64_t at = 0;
  int32_t number = -1;
  float gain = 0;
  float up_gain = 0;
};

struct ExpertArguments {
  LinearArguments linear;   // of expert 0; m is not read
  int64_t expert_bytes;     // from the weights of an expert to those of the next
  SharedExpert shared;      // whose weights lie apart
  const float* gains;       // [experts], WeightArguments::gain of each
  const float* up_gains;    // [experts], the same of up
  const ExpertTile* tiles;  // those with routes first
  int32_t num_tiles;
  ExpertParts parts;      // of a tile; not of large_m
  const int32_t* x_rows;  // row of x of each route in the order of the experts; nullptr: as many
  const int32_t* y_rows;  // the same of y
};

}  // namespace subbyte::cuda
