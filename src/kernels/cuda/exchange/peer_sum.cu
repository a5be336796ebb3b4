#include "kernels/cuda/exchange/peer_sum.h"

#include <algorithm>
#include <iterator>

#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/exchange/peer_words.cuh"

namespace subbyte::cuda {
namespace {

constexpr int kWordThreads = 256;
constexpr int kPartThreads = 512;
// Sums of more bytes, for each rank that they are sent to, go in parts.
constexpr int64_t kMaxWordBytes = 512 << 10;
static_assert(kMaxWordBytes <= 8 * PeerLayout::kWordCtas * PeerLayout::kCtaWords);

struct WordSum {
  Numbers8* y;
  const Numbers8* x;
  int64_t words;
  int words_of_cta;
  Element element;
};

template <int kRanks>
__global__ void __launch_bounds__(kWordThreads)
    sum_words(const __grid_constant__ WordSum a, const __grid_constant__ PeerGroup group) {
  begin_operation();
  const int cta = static_cast<int>(blockIdx.x);
  PeerRounds rounds(group, cta);
  const WordExchange<kRanks> exchange{group, cta, rounds.next()};
  const int64_t first = int64_t{cta} * a.words_of_cta;
  const int count = static_cast<int>(min(int64_t{a.words_of_cta}, a.words - first));
  const int sent = exchange.renews() ? PeerLayout::kCtaWords : count;
  for (int i = static_cast<int>(threadIdx.x); i < sent; i += kWordThreads) {
    exchange.send(i, i < count ? a.x[first + i] : Numbers8{});
  }
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kWordThreads) {
    Numbers8 numbers[kRanks];
    const Numbers8 own = a.x[first + i];
#pragma unroll
    for (int rank = 0; rank < kRanks; ++rank) numbers[rank] = own;
    exchange.receive(rounds, i, numbers);
    a.y[first + i] = sum_of_ranks(a.element, numbers);
  }
  __syncthreads();
  if (threadIdx.x == 0) rounds.keep();
}

struct PartSum {
  uint4* y;
  const uint4* x;
  int64_t units;  // of 16 bytes
  Element element;
};

/// A part of a chunk of units: that of one rank.
struct UnitRange {
  __device__ UnitRange(int64_t first_of_chunk, int64_t units, int rank, int ranks)
      : first(first_of_chunk + units * rank / ranks),
        count(static_cast<int>(first_of_chunk + units * (rank + 1) / ranks - first)) {}

  int64_t first;
  int count;
};

/// The exchange of one chunk by a CTA.
template <int kRanks>
struct PartExchange {
  const PartSum& a;
  const PeerGroup& group;
  PeerRounds& rounds;
  int cta;
  int64_t chunk;  // its first unit
  int64_t units;
  uint32_t round;

  __device__ UnitRange part_of(int rank) const { return {chunk, units, rank, kRanks}; }
  __device__ uint4* place(int phase, int of, int from) const {
    return reinterpret_cast<uint4*>(group.memory[of] + PeerLayout::part(phase, cta, from, kRanks));
  }

  /// Gives each other rank what it sums.
  __device__ void give() const {
#pragma unroll
    for (int step = 1; step < kRanks; ++step) {
      const int to = (group.rank + step) % kRanks;
      const UnitRange part = part_of(to);
      uint4* const there = place(0, to, group.rank);
      for (int i = static_cast<int>(threadIdx.x); i < part.count; i += kPartThreads) {
        there[i] = a.x[part.first + i];
      }
    }
  }

  /// Says that what was given is there, and waits until all have said so.
  __device__ void meet(int phase) const {
    __syncthreads();
    const int other = static_cast<int>(threadIdx.x);
    if (other < kRanks && other != group.rank) {
      auto* const theirs = reinterpret_cast<uint32_t*>(group.memory[other] +
                                                       PeerLayout::flag(phase, cta, group.rank));
      const auto* const ours = reinterpret_cast<const uint32_t*>(
          group.memory[group.rank] + PeerLayout::flag(phase, cta, other));
      st_release_sys(theirs, round);
      rounds.wait([&] { return ld_acquire_sys(ours) == round; });
    }
    __syncthreads();
  }

  /// Sums the rank's part and gives it to all.
  __device__ void sum() const {
    const UnitRange part = part_of(group.rank);
    for (int i = static_cast<int>(threadIdx.x); i < part.count; i += kPartThreads) {
      uint4 numbers[kRanks];
#pragma unroll
      for (int rank = 0; rank < kRanks; ++rank) {
        numbers[rank] =
            rank == group.rank ? a.x[part.first + i] : __ldcg(place(0, group.rank, rank) + i);
      }
      const uint4 sums = sum_of_ranks(a.element, numbers);
      a.y[part.first + i] = sums;
#pragma unroll
      for (int step = 1; step < kRanks; ++step) {
        place(1, (group.rank + step) % kRanks, group.rank)[i] = sums;
      }
    }
  }

  /// Takes the parts that others have summed.
  __device__ void take() const {
#pragma unroll
    for (int step = 1; step < kRanks; ++step) {
      const int from = (group.rank + step) % kRanks;
      const UnitRange part = part_of(from);
      const uint4* const here = place(1, group.rank, from);
      for (int i = static_cast<int>(threadIdx.x); i < part.count; i += kPartThreads) {
        a.y[part.first + i] = __ldcg(here + i);
      }
    }
  }
};

/// A chunk is read as a whole before any of it is written, so y may be x. Places of round k are
/// free in round k + 1: who fills them has seen the flags of all, which come after reading.
template <int kRanks>
__global__ void __launch_bounds__(kPartThreads)
    sum_parts(const __grid_constant__ PartSum a, const __grid_constant__ PeerGroup group) {
  begin_operation();
  constexpr int64_t kChunk = int64_t{kRanks} * PeerLayout::kPartBytes / 16;
  const int cta = static_cast<int>(blockIdx.x);
  PeerRounds rounds(group, PeerLayout::kWordCtas + cta);
  for (int64_t chunk = cta * kChunk; chunk < a.units; chunk += gridDim.x * kChunk) {
    const PartExchange<kRanks> exchange{
        a, group, rounds, cta, chunk, min(kChunk, a.units - chunk), rounds.next()};
    exchange.give();
    exchange.meet(0);
    exchange.sum();
    exchange.meet(1);
    exchange.take();
  }
  __syncthreads();
  if (threadIdx.x == 0) rounds.keep();
}

// By the number of ranks, from two on. (Instances that only a generic lambda names are not compiled
// for the GPU.)
constexpr void (*kWordSums[])(WordSum, PeerGroup) = {sum_words<2>, sum_words<3>, sum_words<4>,
                                                     sum_words<5>, sum_words<6>, sum_words<7>,
                                                     sum_words<8>};
constexpr void (*kPartSums[])(PartSum, PeerGroup) = {sum_parts<2>, sum_parts<3>, sum_parts<4>,
                                                     sum_parts<5>, sum_parts<6>, sum_parts<7>,
                                                     sum_parts<8>};
static_assert(std::size(kWordSums) == PeerGroup::kMaxRanks - 1);
static_assert(std::size(kPartSums) == PeerGroup::kMaxRanks - 1);

int64_t bytes_of(const PeerSumCall& call) {
  return call.size * element_bytes(call.element);
}

void launch_words(const PeerSumCall& call, const PeerGroup& group, Stream stream) {
  const int64_t words = bytes_of(call) / 8;
  const int64_t ctas =
      std::min<int64_t>((words + kWordThreads - 1) / kWordThreads, PeerLayout::kWordCtas);
  const WordSum sum{static_cast<Numbers8*>(call.y), static_cast<const Numbers8*>(call.x), words,
                    static_cast<int>((words + ctas - 1) / ctas), call.element};
  const Grid grid{dim3(static_cast<unsigned>(ctas)), kWordThreads};
  launch(kWordSums[group.ranks - 2], grid, stream, sum, group);
}

void launch_parts(const PeerSumCall& call, const PeerGroup& group, Stream stream) {
  const PartSum sum{static_cast<uint4*>(call.y), static_cast<const uint4*>(call.x),
                    bytes_of(call) / 16, call.element};
  const int64_t chunk = int64_t{group.ranks} * PeerLayout::kPartBytes;
  const int64_t ctas =
      std::min<int64_t>((bytes_of(call) + chunk - 1) / chunk, PeerLayout::kPartCtas);
  const Grid grid{dim3(static_cast<unsigned>(ctas)), kPartThreads};
  launch(kPartSums[group.ranks - 2], grid, stream, sum, group);
}

}  // namespace

bool serves_peer_sum(const PeerSumCall& call) {
  return bytes_of(call) % 16 == 0 && is_aligned(call.x) && is_aligned(call.y);
}

void run_peer_sum(const PeerSumCall& call, const PeerGroup& group, Stream stream) {
  if (call.size == 0) return;
  const bool is_small = bytes_of(call) * (group.ranks - 1) <= kMaxWordBytes;
  is_small ? launch_words(call, group, stream) : launch_parts(call, group, stream);
}

}  // namespace subbyte::cuda
