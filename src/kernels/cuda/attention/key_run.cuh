#pragma once
// A run of 16 keys and values in the registers of a warp, for the eight queries of a head of keys:
// in attend_batch.cu, and inside a step (step/attention.cuh).
//
//   scores   S^T [16 keys x 8 queries]  = K [16 keys x kDim] Q^T
//   results  O^T [kDim x 8 queries]    += V^T [kDim x 16 keys] P^T
//
// Which element of a head is which input of the instruction does not matter as long as keys and
// queries agree: a lane (g = lane / 4, t = lane % 4) has elements 32 b + 8 t .. + 7 of each block b
// of keys g and g + 8, 16 bytes at once. Of values it has kDim / 8 elements of keys 2t, 2t + 1,
// 2t + 8, 2t + 9, as many side by side as are in Words. The weights P^T come out of the scores by a
// transposition in registers.

#include "kernels/cuda/common/matrix_tiles.cuh"

namespace subbyte::cuda {

inline constexpr int kRunKeys = 16;  // that a warp takes at a time

/// kDim: elements of a head that the warp has. Words: uint4 or uint2.
template <class Number, int kDim, class Words = uint4>
struct KeyRun {
  static constexpr int kBlocks = kDim / 32;  // of a key
  static constexpr int kTiles = kDim / 16;   // of results
  static constexpr int kSideBySide = sizeof(Words) / 2;
  static constexpr int kHalves = kDim / 8 / kSideBySide;  // of a value
  static_assert(kHalves == 1 || kHalves == 2);

  uint4 keys[kBlocks][2];    // g and g + 8
  Words values[4][kHalves];  // of keys 2t, 2t + 1, 2t + 8, 2t + 9
  float largest[2];          // scores of queries 2t and 2t + 1, in powers of two
  float sums[2];             // of weights of this lane's keys, until finish_sum()
  float results[kTiles][4];  // of queries 2t and 2t + 1, as store_results() has them

  // Of a lane: its keys and values of the run, and its first elements of them.
  __device__ static int key(int lane, int half) { return lane / 4 + 8 * half; }
  __device__ static int value(int lane, int i) { return lane % 4 * 2 + i % 2 + i / 2 * 8; }
  __device__ static int element_of_key(int lane, int block) { return block * 32 + lane % 4 * 8; }
  __device__ static int element_of_value(int lane, int half) {
    return half * kDim / 2 + lane / 4 * kSideBySide;
  }

  /// Before the first run of a query's keys.
  __device__ void clear_results() {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      largest[c] = -INFINITY;
      sums[c] = 0;
    }
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) results[i][e] = 0;
    }
  }

  /// Scores of keys g, g, g + 8, g + 8 by queries 2t, 2t + 1, added in two chains. query(b): this
  /// lane's elements of block b of query g.
  template <class Query>
  __device__ void multiply_keys(float (&scores)[4], const Query& query) const {
    float chains[2][4] = {};
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const uint32_t low[4] = {keys[b][0].x, keys[b][1].x, keys[b][0].y, keys[b][1].y};
      const uint32_t high[4] = {keys[b][0].z, keys[b][1].z, keys[b][0].w, keys[b][1].w};
      const uint4 q = query(b);
      mma<Number>(chains[0], low, q.x, q.y);
      mma<Number>(chains[1], high, q.z, q.w);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[i] = chains[0][i] + chains[1][i];
  }

  /// Of query 2t + c.
  __device__ void scale_results(int c, float factor) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      results[i][c] *= factor;
      results[i][2 + c] *= factor;
    }
  }

  __device__ void add_values(const float (&weights)[4]) {
    const uint32_t b[2] = {transpose_8x8(Number::pack_x2(weights[0], weights[1])),
                           transpose_8x8(Number::pack_x2(weights[2], weights[3]))};
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      uint32_t a[4];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int half = half_of(r % 2);
        const int element = element_of(i, r % 2);
        a[r] = __byte_perm(word(values[r / 2 * 2][half], element / 2),
                           word(values[r / 2 * 2 + 1][half], element / 2),
                           element % 2 == 0 ? 0x5410 : 0x7632);
      }
      mma<Number>(results[i], a, b[0], b[1]);
    }
  }

  /// After the last run: the sum of query 2t + c over all lanes that have keys of it.
  __device__ void finish_sum(int c) {
#pragma unroll
    for (int distance = 4; distance < kLanes; distance *= 2) {
      sums[c] += __shfl_xor_sync(~0u, sums[c], distance);
    }
  }

  /// Stores what query 2t + c has at element_of_value(half).
  __device__ void store_results(float* to, int half, int c) const {
    float own[kSideBySide];
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        if (half_of(row) == half) own[element_of(i, row)] = results[i][2 * row + c];
      }
    }
#pragma unroll
    for (int i = 0; i < kSideBySide; i += 4) {
      *reinterpret_cast<float4*>(to + i) = {own[i], own[i + 1], own[i + 2], own[i + 3]};
    }
  }

 private:
  /// The element of this lane's values that row g (0) or g + 8 (1) of a tile is.
  __device__ static constexpr int half_of(int row) {
    return kHalves == 2 ? row : 0;
  }
  __device__ static constexpr int element_of(int tile, int row) {
    return kHalves == 2 ? tile : 2 * tile + row;
  }

  __device__ static uint32_t word(const uint2& v, int i) {
    return i == 0 ? v.x : v.y;
  }
  __device__ static uint32_t word(const uint4& v, int i) {
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
  }
};

}  // namespace subbyte::cuda
