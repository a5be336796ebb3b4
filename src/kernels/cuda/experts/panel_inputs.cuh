#pragma once
// The panel of a tile of routes: their inputs in shared memory as operand B of wgmma, and the sums
// of each group of inputs, which zero points and offsets are multiplied by.
//
//   panel    [K tile][token] 64 inputs, 128 bytes of which piece i of 16 lies at i ^ token % 8
//   x_sums   [group of inputs][token]; a group is two tiles where these have the same scales
//
// Inputs after the last one of a row are zeros. Tokens that are not there are left as they were:
// each has columns of its own, and those are not stored.

#include "kernels/cuda/common/pair_mma.cuh"
#include "kernels/cuda/common/rows.cuh"
#include "kernels/cuda/experts/arguments.h"
#include "kernels/cuda/experts/panel_partition.h"

namespace subbyte::cuda {

/// Eight inputs of a row, at any address.
__device__ __noinline__ inline uint4 load_unaligned(const uint16_t* x) {
  uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) words[i] = x[2 * i] | uint32_t{x[2 * i + 1]} << 16;
  return {words[0], words[1], words[2], words[3]};
}

/// By all warps: each has a token's inputs of some batches, of which kAtOnce are on their way.
template <bool kIsAligned>
__device__ void copy_panel(const LinearArguments& a, const RoutedRows& rows, const ExpertTile& tile,
                           int batches, uint8_t* panel) {
  constexpr int kAtOnce = 4;
  constexpr int kWarps = kPanelThreads / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int row_of_lane = lane < tile.count ? static_cast<int>(rows.of_x(tile.first + lane)) : 0;
  const int chunks = batches * tile.count;
#pragma unroll 1
  for (int begin = static_cast<int>(threadIdx.x) / kLanes; begin < chunks;
       begin += kWarps * kAtOnce) {
    uint4 v[kAtOnce];
    int token[kAtOnce];
    int piece[kAtOnce];  // of the row
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int chunk = min(begin + i * kWarps, chunks - 1);
      token[i] = chunk / batches;
      piece[i] = (chunk - token[i] * batches) * kLanes + lane;
      const int64_t row = __shfl_sync(~0u, row_of_lane, token[i]);
      const bool is_there = piece[i] * 8 < a.weights.cols;
      const auto* const x =
          static_cast<const uint16_t*>(a.x) + row * a.x_stride + (is_there ? piece[i] * 8 : 0);
      v[i] = kIsAligned ? *reinterpret_cast<const uint4*>(x) : load_unaligned(x);
      if (!is_there) v[i] = {};
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (begin + i * kWarps >= chunks) break;
      *reinterpret_cast<uint4*>(panel + (piece[i] / 8 * kPanelTokens + token[i]) * kTileCols * 2 +
                                (piece[i] % 8 ^ token[i] % 8) * 16) = v[i];
    }
  }
}

/// Sums of the kSums groups of kTiles neighbouring tiles, by all warps.
template <class Number, int kTiles, int kSums>
__device__ void sum_panel(int tiles, int tokens, uint32_t panel, float* sums) {
  constexpr int kHalf = 2;  // steps, of which ldmatrix has the inputs
  constexpr int kStepsOfGroup = kTiles * kSteps / kSums;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const uint32_t one = Number::splat_float(1);
  const uint32_t ones[4] = {one, one, one, one};
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) / kLanes; i < tiles / kTiles;
       i += kPanelThreads / kLanes) {
    for (int n = 0; n * 8 < tokens; ++n) {
      float d[kSums][4] = {};
#pragma unroll
      for (int step = 0; step < kTiles * kSteps; step += kHalf) {
        uint32_t b[4];
        const int piece = step % kSteps * 2 + lane / 8;
        const int row = (i * kTiles + step / kSteps) * kPanelTokens + n * 8 + lane % 8;
        ldmatrix_x4(b, panel + row * kTileCols * 2 + (piece ^ lane % 8) * 16);
        mma<Number>(d[step / kStepsOfGroup], ones, b[0], b[1]);
        mma<Number>(d[(step + 1) / kStepsOfGroup], ones, b[2], b[3]);
      }
      if (lane >= 4) continue;
#pragma unroll
      for (int g = 0; g < kSums; ++g) {
        float* const to = sums + (i * kSums + g) * kPanelTokens + n * 8 + lane * 2;
        *reinterpret_cast<float2*>(to) = {d[g][0], d[g][1]};
      }
    }
  }
}

/// By all threads of a CTA, none of which reads the panel any more; afterwards they may.
template <class Number, class Decoder, int kGroups>
__device__ __forceinline__ void load_panel(const LinearArguments& a, const RoutedRows& rows,
                                           const ExpertTile& tile, const PanelPartition& p,
                                           uint8_t* shared) {
  if (a.is_aligned) {
    copy_panel<true>(a, rows, tile, p.batches, shared);
  } else {
    copy_panel<false>(a, rows, tile, p.batches, shared);
  }
  fence_proxy_async();
  __syncthreads();
  if constexpr (Decoder::kHasZeros) {
    auto* const sums = reinterpret_cast<float*>(shared + p.x_sums);
    const int tiles = p.batches * kPanelBatch;
    if (kGroups == 1 && p.one_group != 0) {
      sum_panel<Number, 2, 1>(tiles, tile.count, shared_address(shared), sums);
    } else {
      sum_panel<Number, 1, kGroups>(tiles, tile.count, shared_address(shared), sums);
    }
    __syncthreads();
  }
}

}  // namespace subbyte::cuda
