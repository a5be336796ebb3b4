#pragma once
// Which part of a step a row is of, where parts have states.

#include "kernels/cuda/common/elements.h"

namespace subbyte::cuda {

__device__ __forceinline__ StatePart part_of(const StatePart* parts, int64_t num_parts,
                                             int64_t row) {
  int64_t low = 0;
  int64_t high = num_parts;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (parts[middle].first_token <= row ? low : high) = middle;
  }
  return parts[low];
}

}  // namespace subbyte::cuda
