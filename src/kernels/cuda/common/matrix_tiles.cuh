#pragma once
// Small matrices of 16-bit numbers in shared memory and in the fragments of mma. A fragment of sums
// [16][8] has in lane l its rows l / 4 and l / 4 + 8 and its columns 2 (l % 4) and the one after
// it.

#include "kernels/cuda/common/arguments.h"
#include "kernels/cuda/common/ptx.cuh"

namespace subbyte::cuda {

/// Numbers from a row to the next. Rows are an odd number of 16 bytes, so the eight rows of a
/// matrix of ldmatrix lie in different banks.
__host__ __device__ constexpr int tile_stride(int cols) {
  return cols + 8;
}

__device__ __forceinline__ int lane_id() {
  return static_cast<int>(threadIdx.x) % kLanes;
}
__device__ __forceinline__ int fragment_row(int half) {
  return lane_id() / 4 + 8 * half;
}
__device__ __forceinline__ int fragment_col() {
  return lane_id() % 4 * 2;
}

/// What ldmatrix_x4 wants of this lane for rows [row, row + 16) and columns [col, col + 16): 8 x 8
/// matrices (rows, columns) (low, low), (high, low), (low, high), (high, high).
__device__ __forceinline__ uint32_t tile_16x16(uint32_t tile, int stride, int row, int col) {
  return tile + ((row + lane_id() % 16) * stride + col + lane_id() / 16 * 8) * 2;
}

struct SharedTile {
  uint32_t address;
  int stride;

  __device__ uint32_t at(int row, int col) const { return tile_16x16(address, stride, row, col); }
};

/// d += a b^T for 16 rows of b, whose fragment is that of ldmatrix_x4: low and high eight of them.
template <class Number>
__device__ __forceinline__ void mma_16x16(float (&low)[4], float (&high)[4], const uint32_t (&a)[4],
                                          const uint32_t (&b)[4]) {
  mma<Number>(low, a, b[0], b[2]);
  mma<Number>(high, a, b[1], b[3]);
}

/// d += a b for 16 columns of b, whose fragment is that of ldmatrix_x4_trans.
template <class Number>
__device__ __forceinline__ void mma_16x16_trans(float (&low)[4], float (&high)[4],
                                                const uint32_t (&a)[4], const uint32_t (&b)[4]) {
  mma<Number>(low, a, b[0], b[1]);
  mma<Number>(high, a, b[2], b[3]);
}

/// Two fragments of sums, side by side, as the operand a of a product.
template <class Number>
__device__ __forceinline__ void operand_of(uint32_t (&a)[4], const float (&left)[4],
                                           const float (&right)[4]) {
  a[0] = Number::pack_x2(left[0], left[1]);
  a[1] = Number::pack_x2(left[2], left[3]);
  a[2] = Number::pack_x2(right[0], right[1]);
  a[3] = Number::pack_x2(right[2], right[3]);
}

/// Two numbers of a word as floats.
template <class Number>
__device__ __forceinline__ void unpack(float& low, float& high, uint32_t pair) {
  low = Number::to_float(static_cast<uint16_t>(pair));
  high = Number::to_float(static_cast<uint16_t>(pair >> 16));
}

/// Rows [0, 8 kTiles) and columns [col, col + 16) of a tile, transposed.
template <class Number, int kTiles>
__device__ __forceinline__ void load_transposed(float (&to)[kTiles][4], const SharedTile& tile,
                                                int col) {
#pragma unroll
  for (int j = 0; j < kTiles; j += 2) {
    uint32_t pairs[4];
    ldmatrix_x4_trans(pairs, tile.at(8 * j, col));
    unpack<Number>(to[j][0], to[j][1], pairs[0]);
    unpack<Number>(to[j + 1][0], to[j + 1][1], pairs[1]);
    unpack<Number>(to[j][2], to[j][3], pairs[2]);
    unpack<Number>(to[j + 1][2], to[j + 1][3], pairs[3]);
  }
}

/// Stores [16 columns][8 kTiles rows] as rows, rounded; the first `rows` of them.
template <class Number, int kTiles>
__device__ __forceinline__ void store_transposed(uint16_t* to, int64_t stride,
                                                 const float (&from)[kTiles][4], int rows) {
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t pair =
          transpose_8x8(Number::pack_x2(from[j][2 * half], from[j][2 * half + 1]));
      const int row = 8 * j + lane_id() / 4;
      if (row >= rows) continue;
      *reinterpret_cast<uint32_t*>(to + row * stride + 8 * half + fragment_col()) = pair;
    }
  }
}

/// Stores rows [row, row + 16) of l x, rounded, to a matrix with rows of `stride`. l has kTiles
/// times 16 rows and is lower triangular: what it has right of the rows' 16 columns is zero.
/// `cols`: a multiple of 16.
template <class Number, int kTiles>
__device__ __forceinline__ void store_lower_product(uint16_t* to, int64_t stride,
                                                    const SharedTile& l, const SharedTile& x,
                                                    int row, int cols) {
  uint32_t left[kTiles][4];
#pragma unroll
  for (int k = 0; k < kTiles; ++k) {
    if (16 * k <= row) ldmatrix_x4(left[k], l.at(row, 16 * k));
  }
  for (int col = 0; col < cols; col += 16) {
    float sums[2][4] = {};
#pragma unroll
    for (int k = 0; k < kTiles; ++k) {
      if (16 * k > row) break;
      uint32_t right[4];
      ldmatrix_x4_trans(right, x.at(16 * k, col));
      mma_16x16_trans<Number>(sums[0], sums[1], left[k], right);
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        *reinterpret_cast<uint32_t*>(to + (row + fragment_row(half)) * stride + col + 8 * j +
                                     fragment_col()) =
            Number::pack_x2(sums[j][2 * half], sums[j][2 * half + 1]);
      }
    }
  }
}

}  // namespace subbyte::cuda
