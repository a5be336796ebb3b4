#pragma once
// From the sums of large_m/kernel.cuh to results, through shared memory, so that neighbours in
// device memory are written together.
//
// Where the inputs are split, the blocks of a cluster, its parts, have sums of the same outputs and
// tokens. Each puts its own where its ring was, and finishes every splits-th 16 tokens: it fetches
// those sums of all parts and adds them in the order of the parts.
//
//             tokens  0        16       32       48
//   part 0          | adds   |        | adds   |        |
//   part 1          |        | adds   |        | adds   |
//
// A thread has the same rows and tokens in every part, so it reads what the thread with its number
// has written: 16 bytes each, neighbours by neighbours.

#include <cstdint>

#include "kernels/cuda/common/prologue_epilogue.cuh"
#include "kernels/cuda/common/ptx.cuh"
#include "kernels/cuda/large_m/partition.h"

namespace subbyte::cuda {

/// Parts of the inputs, at most: terms of add_sums().
inline constexpr int kMostSplits = 4;

/// Tokens of which a thread has 8 sums of a strip, and which one part finishes.
inline constexpr int kSumTokens = 16;

/// What threads that copy activations do between two tiles: the two barriers of an exchange.
__device__ __forceinline__ void lend_ring() {
  __syncwarp();
  cluster_sync();
  cluster_sync();
  fence_proxy_async();
}

/// Sums of one tile that several blocks have; of a thread that multiplies.
class Exchange {
 public:
  /// Of part `part`, in row `row` of the cluster. `ring`: of activations.
  __device__ Exchange(const LargeMPartition& p, int part, int row, uint32_t ring)
      : p_(p), part_(part), row_(row), at_(ring + (threadIdx.x - 128) * 16) {}

  /// When this block's products are done. Afterwards all parts have put theirs.
  template <int kSums>
  __device__ void put_sums(const float (&sums)[kSums]) const {
    asm volatile("bar.sync 3, 256;" ::: "memory");  // both warpgroups have read the ring
#pragma unroll
    for (int i = 0; i < kSums; i += 4) st_shared_v4(at_ + i / 4 * kSlice, &sums[i]);
    fence_proxy_async();
    __syncwarp();
    cluster_sync();
  }

  /// What a thread fetches of 16 tokens: sums of all parts, as they come.
  struct Fetched {
    float of_part[kMostSplits][8];
  };

  /// Begins to fetch sums of tokens 16 i to 16 i + 15.
  __device__ void fetch_sums(Fetched& to, int i) const {
#pragma unroll
    for (int part = 0; part < kMostSplits; ++part) {
      if (part >= p_.splits) break;
      const int rank = part * p_.multicast + row_;
      ld_dsmem_v4(to.of_part[part], at_ + 2 * i * kSlice, rank);
      ld_dsmem_v4(to.of_part[part] + 4, at_ + (2 * i + 1) * kSlice, rank);
    }
  }

  /// Adds what has come, in the order of the parts. Those that are not there are zero.
  __device__ void add_sums(float (&sums)[8], const Fetched& fetched) const {
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      sums[e] = fetched.of_part[0][e] + fetched.of_part[1][e] + fetched.of_part[2][e] +
                fetched.of_part[3][e];
    }
  }

  /// This block fetches no more; and waits until that is true of all, whose rings may be filled
  /// again then.
  __device__ void end_fetching() const {
    __syncwarp();
    cluster_arrive();
  }
  __device__ void end() const {
    __syncwarp();
    cluster_wait();
  }

  __device__ int part() const {
    return part_;
  }
  __device__ int splits() const {
    return p_.splits;
  }

 private:
  static constexpr int kSlice = 256 * 16;  // 16 bytes of each thread that multiplies

  const LargeMPartition& p_;
  const int part_;
  const int row_;
  const uint32_t at_;  // of this thread's first 16 bytes
};

/// Results of one warpgroup from [tokens][rows]. Not inlined: it is there for all tokens.
template <class Number, int kTokens>
__device__ __noinline__ void finish_staged(const LinearArguments& a, const float* staged,
                                           int first_strip, int64_t token0) {
  const float factor = 1 / a.weights.scale_factor;
  for (int i = threadIdx.x % 128; i < kTokens * 4; i += 128) {
    const int strip = i % 4;
    const int token = i / 4;
    if (token0 + token >= a.m || first_strip + strip >= a.weights.strips) continue;
    float values[kStripRows];
    const float4* from =
        reinterpret_cast<const float4*>(staged + token * kStagedStride + strip * kStripRows);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float4 v = from[j];
      values[4 * j] = v.x * factor;
      values[4 * j + 1] = v.y * factor;
      values[4 * j + 2] = v.z * factor;
      values[4 * j + 3] = v.w * factor;
    }
    finish_strip<Number>(a, first_strip + strip, token0 + token, values);
  }
}

/// Results of one warpgroup.
template <int kTokens>
class Results {
 public:
  using Shape = LargeMShape<kTokens>;

  /// `staged`: of all warpgroups; `group`: which this is.
  __device__ Results(const LinearArguments& a, float* staged, int group)
      : a_(a), staged_(staged + group * Shape::kStagedTokens * kStagedStride) {}

  /// Of the tile whose first strip of this warpgroup and first token these are.
  template <class Number>
  __device__ void store(const float (&sums)[kTokens / 2], int first_strip,
                        int64_t first_token) const {
#pragma unroll
    for (int token = 0; token < kTokens; token += Shape::kStagedTokens) {
      if (first_token + token >= a_.m) break;
      wait_for_group();
#pragma unroll
      for (int i = 0; i < Shape::kStagedTokens; i += kSumTokens) {
        stage(&sums[(token + i) / 2], i);
      }
      wait_for_group();
      finish_staged<Number, Shape::kStagedTokens>(a_, staged_, first_strip, first_token + token);
    }
  }

  /// The same, of sums that several blocks have put.
  template <class Number>
  __device__ void store_shared(const Exchange& exchange, int first_strip,
                               int64_t first_token) const {
    const int64_t tokens = min(int64_t{kTokens}, a_.m - first_token);
    const int parts = static_cast<int>((tokens + kSumTokens - 1) / kSumTokens);
    constexpr bool kAhead = kTokens > 64;  // for fewer there are no registers for it
    Exchange::Fetched fetched = {};
    int i = exchange.part();
    if (kAhead && i < parts) exchange.fetch_sums(fetched, i);
#pragma unroll 1
    while (i < parts) {
      float sums[8];
      const int next = i + exchange.splits();
      if constexpr (kAhead) {
        exchange.add_sums(sums, fetched);
        if (next < parts) exchange.fetch_sums(fetched, next);  // comes while these results go
      } else {
        Exchange::Fetched now = {};
        exchange.fetch_sums(now, i);
        exchange.add_sums(sums, now);
      }
      wait_for_group();
      stage(sums, 0);
      wait_for_group();
      finish_staged<Number, kSumTokens>(a_, staged_, first_strip, first_token + i * kSumTokens);
      i = next;
    }
    exchange.end_fetching();
    exchange.end();
  }

 private:
  /// Of 128 threads, with a barrier of their own, 1 or 2.
  __device__ void wait_for_group() const {
    asm volatile("bar.sync %0, 128;" ::"r"(threadIdx.x / 128) : "memory");
  }

  /// kSumTokens tokens of 64 rows.
  __device__ void stage(const float* sums, int first_token) const {
    const int lane = threadIdx.x % kLanes;
    const int row = threadIdx.x % 128 / kLanes * kStripRows + lane / 4;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int token = first_token + i / 4 * 8 + lane % 4 * 2 + i % 2;
      staged_[token * kStagedStride + row + i % 4 / 2 * 8] = sums[i];
    }
  }

  const LinearArguments& a_;
  float* const staged_;
};

}  // namespace subbyte::cuda
