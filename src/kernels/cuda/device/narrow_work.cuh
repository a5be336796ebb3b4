#pragma once
// How the blocks and warps of narrow.cuh share the work, and how activations come to a block.

#include <cstdint>

#include "kernels/cuda/device/arguments.h"
#include "kernels/cuda/device/mma.cuh"

namespace subbyte::cuda {

/// What one block has to do. Pairs are of tiles, of a strip.
struct NarrowWork {
  int first_strip;
  int strips;
  int first_pair;
  int pairs;
  int token_block;
};

__device__ __forceinline__ NarrowWork narrow_work(const NarrowPartition& p) {
  const int cluster = blockIdx.x >> p.splits_log2;
  const int rank = blockIdx.x & (p.splits - 1);
  const int group = p.token_blocks == 1 ? cluster : cluster / p.token_blocks;
  return {p.strips.begin(group), p.strips.size(group), p.pairs.begin(rank), p.pairs.size(rank),
          cluster - group * p.token_blocks};
}

/// The pairs of all strips in a chunk of inputs, strip after strip, and the parts of the warps.
template <int kWarps>
struct NarrowChunk {
  int pairs;  // of a strip
  int each;   // of a warp
  int more;   // warps that have one more

  __device__ NarrowChunk(const NarrowWork& work, const NarrowPartition& p, int chunk)
      : pairs(max(0, min(p.chunk_pairs, work.pairs - chunk * p.chunk_pairs))),
        each(work.strips * pairs / kWarps),
        more(work.strips * pairs % kWarps) {}

  __device__ int begin(int warp) const { return warp * each + min(warp, more); }
};

/// The runs of a warp in a chunk one after the other. count 0: there are no more.
struct NarrowRun {
  int strip = 0;
  int pair = 0;
  int count = 0;
  int left = 0;  // of the warp's part, this run and what follows

  template <int kWarps>
  __device__ void begin(const NarrowChunk<kWarps>& chunk, int warp) {
    const int first = chunk.begin(warp);
    left = chunk.begin(warp + 1) - first;
    strip = left > 0 ? static_cast<unsigned>(first) / static_cast<unsigned>(chunk.pairs) : 0;
    pair = first - strip * chunk.pairs;
    count = min(chunk.pairs - pair, left);
  }
  __device__ void next(int pairs_of_strip) {
    left -= count;
    ++strip;
    pair = 0;
    count = min(pairs_of_strip, left);
  }
};

/// Copies tokens [0, tokens) of x in steps of kStep inputs, those beyond K as zeros.
template <class Step, class Load>
__device__ __forceinline__ void stage_rows(uint8_t* shared, int stride, int tokens, int cols,
                                           const Load& load) {
  constexpr int kStep = sizeof(Step) / 2;
  constexpr int kAtOnce = 4;  // tokens: loads that are under way together
  for (int token = 0; token < tokens; token += kAtOnce) {
    for (int i = threadIdx.x * kStep; i < cols; i += blockDim.x * kStep) {
      Step v[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) v[j] = token + j < tokens ? load(token + j, i) : Step{};
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (token + j >= tokens) break;
        *reinterpret_cast<Step*>(shared + (token + j) * stride + i * 2) = v[j];
      }
    }
  }
}

/// Tokens [token0, token0 + tokens) of a chunk of inputs, by all threads.
__device__ inline void stage_activations(const LinearArguments& a, uint8_t* shared, int stride,
                                         int64_t token0, int tokens, int first_col, int cols) {
  const WeightArguments& w = a.weights;
  const uint16_t* x = static_cast<const uint16_t*>(a.x) + token0 * a.x_stride;
  if (a.is_aligned) {
    stage_rows<uint4>(shared, stride, tokens, cols, [&](int token, int i) {
      const uint16_t* from = x + token * a.x_stride + first_col + i;
      return first_col + i < w.cols ? *reinterpret_cast<const uint4*>(from) : uint4{};
    });
  } else {
    stage_rows<uint16_t>(shared, stride, tokens, cols, [&](int token, int i) {
      const int col = first_col + i;
      if (col >= w.cols) return uint16_t{};
      return x[token * a.x_stride + (w.gather != nullptr ? w.gather[col] : col)];
    });
  }
}

}  // namespace subbyte::cuda
