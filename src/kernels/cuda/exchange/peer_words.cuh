#pragma once
// What kernels of ranks say to each other: words with their round in them, rows of numbers, flags.

#include "kernels/cuda/common/elements.cuh"
#include "kernels/cuda/exchange/patience.cuh"
#include "kernels/cuda/exchange/peer_rows.h"

namespace subbyte::cuda {

inline bool is_aligned(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

/// Eight bytes of numbers: two of f32, or four of 16 bits.
using Numbers8 = uint2;

/// Two words, of which each is written at once.
__device__ __forceinline__ void st_relaxed_sys(uint4* to, uint64_t first, uint64_t second) {
  asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1, %2};" ::"l"(to), "l"(first), "l"(second)
               : "memory");
}
__device__ __forceinline__ void ld_relaxed_sys(uint64_t& first, uint64_t& second,
                                               const uint4* from) {
  asm volatile("ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];"
               : "=l"(first), "=l"(second)
               : "l"(from)
               : "memory");
}

__device__ __forceinline__ void send_word(uint4* to, const Numbers8& numbers, uint32_t round) {
  const uint64_t tag = uint64_t{round} << 32;
  st_relaxed_sys(to, tag | numbers.x, tag | numbers.y);
}

/// Reads a word; whether it is of that round.
__device__ __forceinline__ bool receive_word(const uint4* from, uint32_t round, Numbers8& numbers) {
  uint64_t first;
  uint64_t second;
  ld_relaxed_sys(first, second, from);
  numbers = {static_cast<uint32_t>(first), static_cast<uint32_t>(second)};
  return first >> 32 == round && second >> 32 == round;
}

/// All that the thread's CTA has written before a barrier is seen by who sees the flag.
__device__ __forceinline__ void st_release_sys(uint32_t* to, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__device__ __forceinline__ uint32_t ld_acquire_sys(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

/// The rounds of a CTA, and what it waits for.
class PeerRounds {
 public:
  /// `counter` of its CTA in the memory of the rank.
  __device__ PeerRounds(const PeerGroup& group, int counter)
      : counters_(reinterpret_cast<uint32_t*>(group.memory[group.rank])), counter_(counter) {
    round_ = counters_[counter];
    lost_ = *lost_word() != 0;
  }

  /// The round that begins.
  __device__ uint32_t next() { return ++round_; }

  /// Calls `arrived` until it returns true. Gives up when its patience ends, and from then on at
  /// once, in this kernel and in those after it.
  template <class Arrived>
  __device__ void wait(Arrived arrived) {
    PeerPatience patience(lost_word());
    while (!arrived() && !lost_) lost_ = patience.ends();
  }

  /// After a barrier since all threads have begun.
  __device__ void keep() const { counters_[counter_] = round_; }

 private:
  __device__ volatile uint32_t* lost_word() const { return counters_ + PeerLayout::kLost / 4; }

  uint32_t* counters_;
  int counter_;
  uint32_t round_;
  bool lost_;
};

/// The words of a CTA, of the rank's own memory and of that of others.
template <int kRanks>
struct WordExchange {
  const PeerGroup& group;
  int cta;
  uint32_t round;

  /// Says that all words of the CTA are to be sent, with numbers or without: in two rounds of 2^31,
  /// so that no word is as old as that where its round has come again.
  __device__ bool renews() const { return (round & 0x7ffffffe) == 0; }

  /// Sends a word to all others.
  __device__ void send(int word, const Numbers8& numbers) const {
#pragma unroll
    for (int step = 1; step < kRanks; ++step) {
      const int to = (group.rank + step) % kRanks;
      send_word(words(to, group.rank) + word, numbers, round);
    }
  }

  /// Receives that word of all others; `numbers` has the rank's own one.
  __device__ void receive(PeerRounds& rounds, int word, Numbers8 (&numbers)[kRanks]) const {
    rounds.wait([&] {
      bool all = true;
#pragma unroll
      for (int from = 0; from < kRanks; ++from) {
        if (from == group.rank) continue;
        all &= receive_word(words(group.rank, from) + word, round, numbers[from]);
      }
      return all;
    });
  }

 private:
  __device__ uint4* words(int of, int from) const {
    return reinterpret_cast<uint4*>(group.memory[of] + PeerLayout::words(round, cta, from, kRanks));
  }
};

/// The rows of a CTA, of the rank's own memory and of that of others, in units of eight numbers of
/// 16 bits. A half of a unit is there when it is not zero: what is sent is the complement of
/// numbers, and of four NaNs with all bits set one is sent without its sign.
template <int kRanks>
struct RowExchange {
  const PeerGroup& group;
  int cta;
  uint32_t round;

  __device__ void send(int unit, const uint4& numbers) const {
    const uint64_t low = as_sent(numbers.x, numbers.y);
    const uint64_t high = as_sent(numbers.z, numbers.w);
#pragma unroll
    for (int step = 1; step < kRanks; ++step) {
      st_relaxed_sys(units(round, (group.rank + step) % kRanks, group.rank) + unit, low, high);
    }
  }

  /// Clears that unit of the round before, while those of this one are on their way.
  __device__ void clear(int unit) const {
#pragma unroll
    for (int from = 0; from < kRanks; ++from) {
      if (from != group.rank) units(round - 1, group.rank, from)[unit] = {};
    }
  }

  /// Receives that unit of all others; `numbers` has the rank's own one.
  __device__ void receive(PeerRounds& rounds, int unit, uint4 (&numbers)[kRanks]) const {
    rounds.wait([&] {
      bool all = true;
#pragma unroll
      for (int from = 0; from < kRanks; ++from) {
        if (from == group.rank) continue;
        uint64_t low;
        uint64_t high;
        ld_relaxed_sys(low, high, units(round, group.rank, from) + unit);
        all &= low != 0 && high != 0;
        numbers[from] = {~static_cast<uint32_t>(low), ~static_cast<uint32_t>(low >> 32),
                         ~static_cast<uint32_t>(high), ~static_cast<uint32_t>(high >> 32)};
      }
      return all;
    });
  }

 private:
  static __device__ uint64_t as_sent(uint32_t low, uint32_t high) {
    const uint64_t sent = ~(uint64_t{high} << 32 | low);
    return sent != 0 ? sent : uint64_t{1} << 63;
  }
  __device__ uint4* units(uint32_t of_round, int of, int from) const {
    return reinterpret_cast<uint4*>(group.memory[of] + PeerRows::row(of_round, cta, from, kRanks));
  }
};

/// Adds eight bytes of numbers of a rank: of f32 the first two sums are used.
__device__ __forceinline__ void add_numbers(Element element, const Numbers8& numbers, bool is_first,
                                            float (&sums)[4]) {
  float values[4] = {};
  if (element == Element::kF32) {
    values[0] = __uint_as_float(numbers.x);
    values[1] = __uint_as_float(numbers.y);
  } else {
    values[0] = to_float(element, static_cast<uint16_t>(numbers.x));
    values[1] = to_float(element, static_cast<uint16_t>(numbers.x >> 16));
    values[2] = to_float(element, static_cast<uint16_t>(numbers.y));
    values[3] = to_float(element, static_cast<uint16_t>(numbers.y >> 16));
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[i] = is_first ? values[i] : sums[i] + values[i];
}

__device__ __forceinline__ Numbers8 rounded_numbers(Element element, const float (&sums)[4]) {
  if (element == Element::kF32) return {__float_as_uint(sums[0]), __float_as_uint(sums[1])};
  return {pack_x2(element, sums[0], sums[1]), pack_x2(element, sums[2], sums[3])};
}

/// The sum of what ranks have, in their order, rounded.
template <int kRanks>
__device__ __forceinline__ Numbers8 sum_of_ranks(Element element,
                                                 const Numbers8 (&numbers)[kRanks]) {
  float sums[4] = {};
#pragma unroll
  for (int rank = 0; rank < kRanks; ++rank) add_numbers(element, numbers[rank], rank == 0, sums);
  return rounded_numbers(element, sums);
}

/// The same of 16 bytes.
template <int kRanks>
__device__ __forceinline__ uint4 sum_of_ranks(Element element, const uint4 (&numbers)[kRanks]) {
  Numbers8 low[kRanks];
  Numbers8 high[kRanks];
#pragma unroll
  for (int rank = 0; rank < kRanks; ++rank) {
    low[rank] = {numbers[rank].x, numbers[rank].y};
    high[rank] = {numbers[rank].z, numbers[rank].w};
  }
  const Numbers8 first = sum_of_ranks(element, low);
  const Numbers8 second = sum_of_ranks(element, high);
  return {first.x, first.y, second.x, second.y};
}

}  // namespace subbyte::cuda
