#pragma once
// From the accumulators of large_m to results, through shared memory, so that neighbours in device
// memory are written together.
//
// With split-K the CTAs of a cluster have partials of the same outputs and tokens. Each puts its
// own where its ring of activations was, and finishes every splits-th 16 tokens: it loads their
// partials of all parts through DSMEM and adds them in the order of the parts.
//
//             tokens  0        16       32       48
//   part 0          | adds   |        | adds   |        |
//   part 1          |        | adds   |        | adds   |
//
// A thread has the same rows and tokens in every part, so it reads what the thread of its number
// has written: 16 bytes each, neighbours by neighbours.
//
// The exchange has two cluster barriers, in which the producers take part (wait_for_exchange()):
// the first when all partials are put, the second when all have been loaded; then the rings may be
// filled again. Between generic writes and TMA, fence.proxy.async.

#include <cstdint>

#include "kernels/cuda/common/prologue_epilogue.cuh"
#include "kernels/cuda/common/ptx.cuh"
#include "kernels/cuda/common/rows.cuh"
#include "kernels/cuda/large_m/partition.h"

namespace subbyte::cuda {

/// Parts of K, at most: terms of add_partials().
inline constexpr int kMaxSplitsOfK = 4;

/// Tokens of which a thread has 8 accumulators of a strip, and which one part finishes.
inline constexpr int kExchangeTokens = 16;

/// The 128 threads of a consumer warpgroup: named barrier 1 or 2.
__device__ __forceinline__ void sync_warpgroup() {
  asm volatile("bar.sync %0, 128;" ::"r"(threadIdx.x / 128) : "memory");
}

/// What producers do in an exchange: its two barriers.
__device__ __forceinline__ void wait_for_exchange() {
  __syncwarp();
  cluster_sync();
  cluster_sync();
  fence_proxy_async();
}

/// The partials of one output tile, of a consumer thread.
class Exchange {
 public:
  /// Of part `part`, in row `row` of the cluster. `ring`: of activations.
  __device__ Exchange(const LargeMPartition& p, int part, int row, uint32_t ring)
      : p_(p), part_(part), row_(row), at_(ring + (threadIdx.x - 128) * 16) {}

  /// When the products of this CTA are done. Afterwards all parts have put theirs.
  template <int kCount>
  __device__ void put_partials(const float (&partials)[kCount]) const {
    asm volatile("bar.sync 3, 256;" ::: "memory");  // both consumer warpgroups have read the ring
#pragma unroll
    for (int i = 0; i < kCount; i += 4) st_shared_v4(at_ + i / 4 * kSlice, &partials[i]);
    fence_proxy_async();
    __syncwarp();
    cluster_sync();
  }

  /// What a thread loads of 16 tokens: partials of all parts.
  struct Loaded {
    float of_part[kMaxSplitsOfK][8];
  };

  /// Starts the loads of the partials of tokens 16 i to 16 i + 15.
  __device__ void load_partials(Loaded& to, int i) const {
#pragma unroll
    for (int part = 0; part < kMaxSplitsOfK; ++part) {
      if (part >= p_.splits) break;
      const int rank = part * p_.multicast + row_;
      ld_dsmem_v4(to.of_part[part], at_ + 2 * i * kSlice, rank);
      ld_dsmem_v4(to.of_part[part] + 4, at_ + (2 * i + 1) * kSlice, rank);
    }
  }

  /// Adds them in the order of the parts. Parts that are not there are zero.
  __device__ void add_partials(float (&sums)[8], const Loaded& loaded) const {
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      sums[e] =
          loaded.of_part[0][e] + loaded.of_part[1][e] + loaded.of_part[2][e] + loaded.of_part[3][e];
    }
  }

  /// This CTA loads no more; end() waits until that is true of all.
  __device__ void end_loads() const {
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
  static constexpr int kSlice = 256 * 16;  // 16 bytes of each consumer thread

  const LargeMPartition& p_;
  const int part_;
  const int row_;
  const uint32_t at_;  // of this thread's first 16 bytes
};

/// Results of one warpgroup from [tokens][rows]. Not inlined: one copy serves all tokens.
template <class Number, int kTokens, class Rows>
__device__ __noinline__ void finish_staged(const LinearArguments& a, Rows rows, const float* staged,
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
    finish_strip<Number>(a, first_strip + strip, rows.of_y(token0 + token), values);
  }
}

/// Results of one warpgroup.
template <int kTokens>
class Results {
 public:
  using Shape = LargeMShape<kTokens>;

  /// `staged`: of both consumer warpgroups; `warpgroup`: which of them this is.
  __device__ Results(float* staged, int warpgroup)
      : staged_(staged + warpgroup * Shape::kStagedTokens * kStagedStride) {}

  /// Of the output tile with these first strip of the warpgroup and first token.
  template <class Number, class Rows>
  __device__ void store(const LinearArguments& a, const Rows& rows,
                        const float (&accumulators)[kTokens / 2], int first_strip,
                        int64_t first_token) const {
#pragma unroll
    for (int token = 0; token < kTokens; token += Shape::kStagedTokens) {
      if (first_token + token >= a.m) break;
      sync_warpgroup();
#pragma unroll
      for (int i = 0; i < Shape::kStagedTokens; i += kExchangeTokens) {
        stage(&accumulators[(token + i) / 2], i);
      }
      sync_warpgroup();
      finish_staged<Number, Shape::kStagedTokens>(a, rows, staged_, first_strip,
                                                  first_token + token);
    }
  }

  /// The same, of the partials of several CTAs.
  template <class Number, class Rows>
  __device__ void store_reduced(const LinearArguments& a, const Rows& rows,
                                const Exchange& exchange, int first_strip,
                                int64_t first_token) const {
    const int64_t tokens = min(int64_t{kTokens}, a.m - first_token);
    const int parts = static_cast<int>((tokens + kExchangeTokens - 1) / kExchangeTokens);
    constexpr bool kPrefetches = kTokens > 64;  // for fewer there are no registers for it
    Exchange::Loaded loaded = {};
    int i = exchange.part();
    if (kPrefetches && i < parts) exchange.load_partials(loaded, i);
#pragma unroll 1
    while (i < parts) {
      float sums[8];
      const int next = i + exchange.splits();
      if constexpr (kPrefetches) {
        exchange.add_partials(sums, loaded);
        if (next < parts) exchange.load_partials(loaded, next);  // arrive while these results go
      } else {
        Exchange::Loaded now = {};
        exchange.load_partials(now, i);
        exchange.add_partials(sums, now);
      }
      sync_warpgroup();
      stage(sums, 0);
      sync_warpgroup();
      finish_staged<Number, kExchangeTokens>(a, rows, staged_, first_strip,
                                             first_token + i * kExchangeTokens);
      i = next;
    }
    exchange.end_loads();
    exchange.end();
  }

 private:
  /// kExchangeTokens tokens of 64 rows.
  __device__ void stage(const float* sums, int first_token) const {
    const int lane = threadIdx.x % kLanes;
    const int row = threadIdx.x % 128 / kLanes * kStripRows + lane / 4;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int token = first_token + i / 4 * 8 + lane % 4 * 2 + i % 2;
      staged_[token * kStagedStride + row + i % 4 / 2 * 8] = sums[i];
    }
  }

  float* const staged_;
};

}  // namespace subbyte::cuda
