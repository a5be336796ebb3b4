#pragma once
// Loads and stores of numbers of any type as floats, and sums over a CTA in a fixed order.

#include "kernels/cuda/common/arguments.h"
#include "kernels/cuda/common/elements.h"
#include "kernels/gpu/dialect.h"

namespace subbyte::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;

__device__ __forceinline__ float to_float(Element element, uint16_t bits) {
  return element == Element::kF16 ? gpu::F16::to_float(bits) : gpu::BF16::to_float(bits);
}

__device__ __forceinline__ uint32_t pack_x2(Element element, float low, float high) {
  return element == Element::kF16 ? gpu::F16::pack_x2(low, high) : gpu::BF16::pack_x2(low, high);
}

/// To nearest even.
__device__ __forceinline__ float rounded(Element element, float value) {
  if (element == Element::kF32) return value;
  return to_float(element, static_cast<uint16_t>(pack_x2(element, value, 0)));
}

__device__ __forceinline__ float load_element(Element element, const void* p, int64_t i) {
  if (element == Element::kF32) return static_cast<const float*>(p)[i];
  return to_float(element, static_cast<const uint16_t*>(p)[i]);
}

/// x / (1 + e^-x)
__device__ __forceinline__ float silu(float x) {
  return x / __fadd_rn(1.0f, expf(-x));
}

/// Rounded to nearest even.
__device__ __forceinline__ void store_element(Element element, void* p, int64_t i, float value) {
  if (element == Element::kF32) {
    static_cast<float*>(p)[i] = value;
  } else {
    static_cast<uint16_t*>(p)[i] = static_cast<uint16_t>(pack_x2(element, value, 0));
  }
}

/// Elements i to i + 7, 16-byte aligned.
__device__ __forceinline__ void load_8(Element element, const void* p, int64_t i,
                                       float (&values)[8]) {
  if (element == Element::kF32) {
    const float4* const from = reinterpret_cast<const float4*>(static_cast<const float*>(p) + i);
    const float4 a = from[0];
    const float4 b = from[1];
    values[0] = a.x, values[1] = a.y, values[2] = a.z, values[3] = a.w;
    values[4] = b.x, values[5] = b.y, values[6] = b.z, values[7] = b.w;
    return;
  }
  const uint4 v = *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(p) + i);
  const uint32_t pairs[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    values[j] = to_float(element, static_cast<uint16_t>(pairs[j / 2] >> 16 * (j % 2)));
  }
}

/// Rounded to nearest even, 16-byte aligned.
__device__ __forceinline__ void store_8(Element element, void* p, int64_t i,
                                        const float (&values)[8]) {
  if (element == Element::kF32) {
    float4* const to = reinterpret_cast<float4*>(static_cast<float*>(p) + i);
    to[0] = {values[0], values[1], values[2], values[3]};
    to[1] = {values[4], values[5], values[6], values[7]};
    return;
  }
  *reinterpret_cast<uint4*>(static_cast<uint16_t*>(p) + i) = {
      pack_x2(element, values[0], values[1]), pack_x2(element, values[2], values[3]),
      pack_x2(element, values[4], values[5]), pack_x2(element, values[6], values[7])};
}

/// Elements i to i + 7 of `size`, at any address; zero beyond the last. kAligned: all are there,
/// at multiples of 16 bytes.
template <bool kAligned = false>
__device__ __forceinline__ void load_8_of(Element element, const void* p, int64_t i, int64_t size,
                                          float (&values)[8]) {
  if constexpr (kAligned) return load_8(element, p, i, values);
#pragma unroll
  for (int j = 0; j < 8; ++j) values[j] = i + j < size ? load_element(element, p, i + j) : 0;
}

template <class T>
__device__ __forceinline__ T sum_of_warp(T value) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(~0u, value, distance);
  }
  return value;
}

/// The same sum in every thread. `partials` has one element for each warp.
template <class T>
__device__ __forceinline__ T sum_of_cta(T value, T* partials) {
  value = sum_of_warp(value);
  if (threadIdx.x % kLanes == 0) partials[threadIdx.x / kLanes] = value;
  __syncthreads();
  T sum = 0;
  for (int warp = 0; warp < static_cast<int>(blockDim.x) / kLanes; ++warp) sum += partials[warp];
  return sum;
}

/// The sum over a CTA of kWarps warps, a power of two, the same in every thread: with fewer
/// additions one after the other than sum_of_cta() has.
template <int kWarps, class T>
__device__ __forceinline__ T sum_in_tree(T value, T* partials) {
  value = sum_of_warp(value);
  if (threadIdx.x % kLanes == 0) partials[threadIdx.x / kLanes] = value;
  __syncthreads();
  T sum = partials[threadIdx.x % kWarps];
#pragma unroll
  for (int distance = kWarps / 2; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(~0u, sum, distance);
  }
  return sum;
}

}  // namespace subbyte::cuda
