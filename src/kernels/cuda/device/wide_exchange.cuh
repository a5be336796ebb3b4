#pragma once
// Where wide.cuh splits the inputs: the blocks of a cluster, its parts, have sums of the same tile
// and add them up. Each part owns the tokens 16 i to 16 i + 15 with i % splits = part:
//
//             tokens  0      16     32     48
//   part 0          | owns |  ->1 | owns |  ->1 |     sums that others own go to the memory of the
//   part 1          |  ->0 | owns |  ->0 | owns |     ring, from where the owner fetches them
//
// A thread has the same rows and tokens in every part, so it reads what the thread with its number
// has written: 16 bytes each, neighbours by neighbours. Parts are added in their order.
//
// Two barriers of the cluster for each tile, at which all threads arrive, those that copy
// activations, too: sums are there; sums are read, and the ring may be filled again.

#include <cstdint>

#include "kernels/cuda/device/arguments.h"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/device/shared_sizes.h"

namespace subbyte::cuda {

/// Accesses before it and those of the copy engine after it (by way of a barrier) keep their order.
__device__ __forceinline__ void fence_copy_engine() {
  asm volatile("fence.proxy.async;" ::: "memory");
}

/// What threads that copy activations do between two tiles.
__device__ __forceinline__ void lend_ring() {
  __syncwarp();
  wait_for_cluster();
  wait_for_cluster();
  fence_copy_engine();
}

__device__ __forceinline__ void store_shared(uint32_t address, const float* v) {
  asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(address), "f"(v[0]), "f"(v[1]),
               "f"(v[2]), "f"(v[3])
               : "memory");
}

/// Four floats in the shared memory of block `rank` of the cluster, at the address of ours.
__device__ __forceinline__ void load_from_block(float* v, uint32_t address, int rank) {
  asm volatile(
      "{.reg .b32 remote; mapa.shared::cluster.u32 remote, %4, %5;"
      "ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [remote];}"
      : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
      : "r"(address), "r"(rank)
      : "memory");
}

class Exchange {
 public:
  static constexpr int kTokens = kExchangeTokens;
  static constexpr int kSlice = kExchangeSlice;

  /// Of a thread that multiplies. `ring`: of activations.
  __device__ Exchange(const WidePartition& p, int part, int row, uint32_t ring)
      : part_(part),
        row_(row),
        cluster_(p.cluster),
        splits_(p.splits),
        log2_(31 - __clz(p.splits)),
        at_(ring + (threadIdx.x - 128) * 16) {}

  __device__ bool owns(int i) const { return (i & (splits_ - 1)) == part_; }

  /// When this block's products are done: sums of what it owns become those of all parts. Tokens
  /// from `tokens` on are nobody's. To be followed by end(), before the next product.
  template <int kTileTokens, int kStrips>
  __device__ void add_sums(float (&sums)[kStrips][kTileTokens / 2], int64_t tokens) const {
    asm volatile("bar.sync 3, 256;" ::: "memory");  // both warpgroups have read the ring
#pragma unroll
    for (int i = 0; i < kTileTokens / kTokens; ++i) {
      if (i * kTokens >= tokens || owns(i)) continue;
#pragma unroll
      for (int j = 0; j < kStrips; ++j) {
        const uint32_t to = slot(i, part_) * (kStrips * 2 * kSlice) + at_ + j * 2 * kSlice;
        store_shared(to, &sums[j][8 * i]);
        store_shared(to + kSlice, &sums[j][8 * i + 4]);
      }
    }
    fence_copy_engine();
    __syncwarp();
    wait_for_cluster();
#pragma unroll
    for (int i = 0; i < kTileTokens / kTokens; ++i) {
      if (i * kTokens >= tokens || !owns(i)) continue;
#pragma unroll
      for (int j = 0; j < kStrips; ++j) {
        add_parts(&sums[j][8 * i], at_ + j * 2 * kSlice, kStrips * 2 * kSlice, i);
      }
    }
    __syncwarp();
    cluster_arrive();
  }

  /// Waits until all parts have read.
  __device__ void end() const {
    __syncwarp();
    cluster_wait();
  }

 private:
  /// Of tokens i in the memory of part `from`, which has none of its own.
  __device__ int slot(int i, int from) const {
    const int owner = i & (splits_ - 1);
    return (i >> log2_) * (splits_ - 1) + owner - (owner > from ? 1 : 0);
  }

  /// Eight sums of each part: four loads of 8 floats are under way together.
  __device__ void add_parts(float* sums, uint32_t at, int size, int i) const {
    float total[8] = {};
#pragma unroll 1
    for (int first = 0; first < splits_; first += 4) {
      float v[4][8];
#pragma unroll
      for (int k = 0; k < 4; ++k) fetch(v[k], sums, at, size, i, first + k);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
#pragma unroll
        for (int e = 0; e < 8; ++e) total[e] += v[k][e];
      }
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) sums[e] = total[e];
  }

  /// Zeros if there is no such part.
  __device__ void fetch(float (&v)[8], const float* sums, uint32_t at, int size, int i,
                        int part) const {
    if (part < splits_ && part != part_) {
      const uint32_t from = at + slot(i, part) * size;
      load_from_block(v, from, part * cluster_ + row_);
      load_from_block(v + 4, from + kSlice, part * cluster_ + row_);
      return;
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) v[e] = part == part_ ? sums[e] : 0;
  }

  const int part_;
  const int row_;
  const int cluster_;
  const int splits_;
  const int log2_;
  const uint32_t at_;  // of this thread's first 16 bytes
};

}  // namespace subbyte::cuda
