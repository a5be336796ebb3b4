#pragma once
// Loads and stores of eight numbers where all arrays have multiples of them, or of one.

#include "kernels/cuda/common/elements.cuh"

namespace subbyte::cuda {

/// Numbers of a thread, where all arrays have multiples of them.
inline constexpr int kWide = 8;

template <int kCount>
__device__ __forceinline__ void load(Element element, const void* p, int64_t i,
                                     float (&values)[kCount]) {
  if constexpr (kCount == kWide) {
    load_8(element, p, i, values);
  } else {
    values[0] = load_element(element, p, i);
  }
}

template <int kCount>
__device__ __forceinline__ void store(Element element, void* p, int64_t i,
                                      const float (&values)[kCount]) {
  if constexpr (kCount == kWide) {
    store_8(element, p, i, values);
  } else {
    store_element(element, p, i, values[0]);
  }
}

}  // namespace subbyte::cuda
