#pragma once
// Weights of packed vectors (vq2, vq4) one row at a time, for what is no product.

#include <cstdint>

#include "kernels/cuda/common/prologue_epilogue.cuh"
#include "kernels/cuda/common/rotate.cuh"

namespace subbyte::cuda {

/// The byte of inputs `col` to `col` + 8 / kBits - 1 of a row of a strip.
template <int kBits>
__device__ __forceinline__ uint32_t load_vector_byte(const WeightArguments& w, int64_t strip,
                                                     int row, int col) {
  constexpr CodeOrder kOrder = kBits == 2 ? CodeOrder::kFours : CodeOrder::kPairs;
  const Slot slot = slot_of(row, col % kTileCols, kOrder);
  const BitPlace place = bit_place(slot, 0, kBits, kOrder);
  const int64_t tile = strip * w.tiles + col / kTileCols;
  return w.codes[tile * tile_bytes(kBits) + word_in_tile(slot.lane, place.word, kBits) * 4 +
                 place.bit / 8];
}

__device__ __forceinline__ float load_vector_scale(const WeightArguments& w, int64_t strip, int row,
                                                   int col) {
  const int64_t at =
      (((strip * w.blocks + col / kTileCols) * 8 + row % 8) * 2 + col % kTileCols / 32) * 2 +
      row / 8;
  uint32_t code = w.scales[at * w.scale.bytes];
  for (int i = 1; i < w.scale.bytes; ++i) {
    code |= uint32_t{w.scales[at * w.scale.bytes + i]} << 8 * i;
  }
  return scale_value(code, w.scale);
}

/// The eight weights of a lane from input `col` on, times their scale, as they are stored: rotated.
template <int kBits>
__device__ __forceinline__ void load_vectors(const WeightArguments& w, int64_t strip, int row,
                                             int col, float (&weights)[kRotatedOfLane]) {
  constexpr int kSize = 8 / kBits;  // weights of a byte
  const float scale = load_vector_scale(w, strip, row, col);
#pragma unroll
  for (int i = 0; i < kRotatedOfLane; i += kSize) {
    const float* const vector = w.vectors + load_vector_byte<kBits>(w, strip, row, col + i) * kSize;
#pragma unroll
    for (int j = 0; j < kSize; ++j) weights[i + j] = __fmul_rn(vector[j], scale);
  }
}

}  // namespace subbyte::cuda
