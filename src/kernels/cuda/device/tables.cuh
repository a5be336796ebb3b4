#pragma once
// What decoders need besides codes: tables in shared memory, of codebooks and of the codes of
// one-byte scales; and all decoders by one call.

#include <cstdint>

#include "kernels/cuda/device/arguments.h"
#include "kernels/cuda/device/decoders.h"
#include "kernels/cuda/device/mma.cuh"

namespace subbyte::cuda {

__device__ __forceinline__ float scale_value(uint32_t code, const ScaleRule& rule) {
  const uint32_t magnitude = code & rule.magnitude;
  const uint32_t bits = magnitude << rule.shift | (code & rule.sign) << rule.sign_shift;
  const float value = magnitude == 0 ? rule.zero : __uint_as_float(bits) * rule.factor;
  return magnitude >= rule.special ? __uint_as_float(0x7fc00000u) : value;
}

/// Values of all codes of a one-byte scale, by all threads of a block, which then wait for each
/// other.
__device__ __forceinline__ void fill_scale_values(float* values, const ScaleRule& rule) {
  if (rule.bytes != 1) return;
  for (int i = threadIdx.x; i < 256; i += blockDim.x) values[i] = scale_value(i, rule);
}

/// decode() of every decoder, with what it needs besides words.
template <class Decoder>
__device__ __forceinline__ void decode_step(const uint32_t* words, int step, ZeroPair zero,
                                            const Table& table, uint32_t (&registers)[4]) {
  if constexpr (Decoder::kHasZeros) {
    Decoder::decode(words, step, zero, registers);
  } else if constexpr (Decoder::kHasTable) {
    Decoder::decode(words, step, table, registers);
  } else {
    Decoder::decode(words, step, registers);
  }
}

/// decode_raw() of integers, decode() of all others.
template <class Decoder>
__device__ __forceinline__ void decode_raw(const uint32_t* words, int step, const Table& table,
                                           uint32_t (&registers)[4]) {
  if constexpr (Decoder::kHasZeros) {
    Decoder::decode_raw(words, step, registers);
  } else if constexpr (Decoder::kHasTable) {
    Decoder::decode(words, step, table, registers);
  } else {
    Decoder::decode(words, step, registers);
  }
}

template <class Decoder>
__device__ constexpr float raw_unit() {
  if constexpr (Decoder::kHasZeros) return Decoder::kRawUnit;
  return 1;
}

template <class Decoder>
__device__ constexpr float raw_odd() {
  if constexpr (Decoder::kHasZeros) return Decoder::kRawOdd;
  return 1;
}

/// Bytes of shared memory that fill_table() fills.
template <class Decoder>
__host__ __device__ constexpr int table_bytes() {
  if constexpr (Decoder::kHasTable) return Decoder::kPairs * kLanes * 4;
  return 0;
}

/// By all threads of a block, which then wait for each other.
template <class Decoder>
__device__ Table fill_table(const WeightArguments& weights, uint32_t* shared) {
  const int lane = threadIdx.x % kLanes;
  Table table = {shared_address(shared + lane), 0};
  if constexpr (Decoder::kHasTable) {
    for (int i = threadIdx.x; i < Decoder::kPairs * kLanes; i += blockDim.x) {
      const int index = i / kLanes;
      shared[i] = weights.codebook[Decoder::low_code(index)] |
                  uint32_t{weights.codebook[Decoder::high_code(index)]} << 16;
    }
    if constexpr (Decoder::kPairs == 0) table.value = weights.codebook[lane];
  }
  return table;
}

}  // namespace subbyte::cuda
