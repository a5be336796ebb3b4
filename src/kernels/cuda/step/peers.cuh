#pragma once
// Sums over ranks within a step. The weights of all ranks give a part of each number of the result,
// and the same thread of each rank has it, as strips are divided among CTAs alike:
//
//   rank 0   part ---> memory of rank 1      wait for the part of rank 1   sum -> tagged float
//   rank 1   part ---> memory of rank 0      wait for the part of rank 0   sum -> tagged float
//
// A word is a number in f32 and the round that it is of: one trip over the link, after which who
// reads the sum finds it as the results of one GPU. Parts are added in the order of ranks, by all.
//
// Words of round k lie where those of k - 2 did. Rank r writes a word of k when it has that of
// k - 1 of every rank s, and whoever on s writes that one has read its words of k - 2 before.

#include "kernels/cuda/exchange/patience.cuh"
#include "kernels/cuda/step/program.h"

namespace subbyte::cuda {

__device__ __forceinline__ void st_relaxed_sys(uint64_t* to, uint64_t value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}
__device__ __forceinline__ uint64_t ld_relaxed_sys(const uint64_t* from) {
  uint64_t value;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}

/// The words of rank `from` in the memory of rank `of`.
__device__ __forceinline__ uint64_t* peer_sums(const PeerGroup& group, uint32_t round, int of,
                                               int from) {
  return reinterpret_cast<uint64_t*>(group.memory[of] + PeerLayout::sums(round, from, group.ranks));
}

/// What rank `from` gives; whatever is there once a rank is lost.
__device__ __forceinline__ float wait_for_peer(const PeerGroup& group, uint32_t round, int from,
                                               uint32_t at) {
  const uint64_t* const word = peer_sums(group, round, group.rank, from) + at;
  PeerPatience patience(
      reinterpret_cast<volatile uint32_t*>(group.memory[group.rank] + PeerLayout::kLost));
  uint64_t found = ld_relaxed_sys(word);
  while (static_cast<uint32_t>(found >> 32) != round && !patience.ends()) {
    found = ld_relaxed_sys(word);
  }
  return __uint_as_float(static_cast<uint32_t>(found));
}

/// The sum of the `part` of each rank, of number `at` of the result.
__device__ __forceinline__ float sum_over_ranks(const PeerGroup& group, uint32_t round, uint32_t at,
                                                float part) {
  const uint64_t word = uint64_t{round} << 32 | __float_as_uint(part);
#pragma unroll 1
  for (int step = 1; step < group.ranks; ++step) {
    int to = group.rank + step;
    if (to >= group.ranks) to -= group.ranks;
    st_relaxed_sys(peer_sums(group, round, to, group.rank) + at, word);
  }
  float sum = 0;
#pragma unroll 1
  for (int from = 0; from < group.ranks; ++from) {
    const float more = from == group.rank ? part : wait_for_peer(group, round, from, at);
    sum = from == 0 ? more : sum + more;
  }
  return sum;
}

}  // namespace subbyte::cuda
