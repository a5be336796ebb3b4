#pragma once
// The memory by which GPUs of one group exchange numbers in kernels: each has some that all others
// write to, and reads only its own. It is zero at first.
//
//   rounds   [kWordCtas + kPartCtas] how often the CTAs of this rank have exchanged; whether a rank
//            was lost
//   flags    [2][kPartCtas][rank] the round in which that rank has filled its parts
//   words    [2][kWordCtas][rank][kCtaWords] words of 16 bytes: two times four bytes of numbers and
//            the round that they are of
//   parts    [2][kPartCtas][rank][kPartBytes]
//   sums     [2][rank][kStepNumbers] words of 8 bytes, a number in f32 and the round that it is of:
//            sums within the kernel of a step (step/peers.cuh), whose rounds the host counts
//
// A CTA of one rank exchanges with the CTA of the same index of the others. Rounds are counted in
// that memory, so that a graph with such kernels can be replayed. A CTA writes words of round k
// where those of k - 2 were: all have read them, as they have sent words of k - 1 since.

#include <cstddef>
#include <cstdint>

#include "base/gpu_ranks.h"
#include "base/host_device.h"

namespace subbyte::cuda {

/// The memory of all ranks, as the GPU of one of them sees it.
struct PeerGroup {
  static constexpr int kMaxRanks = kMaxGpuRanks;

  int rank = 0;
  int ranks = 1;
  std::byte* memory[kMaxRanks] = {};
};

/// Where things are in the memory of a rank.
struct PeerLayout {
  static constexpr int kWordCtas = 64;
  static constexpr int kCtaWords = 2048;
  static constexpr int kPartCtas = 128;
  static constexpr int kPartBytes = 16 << 10;
  static constexpr int kStepNumbers = 16 << 10;
  static constexpr int64_t kLost = 4 * (kWordCtas + kPartCtas);
  static constexpr int64_t kFlags = 4096;
  static constexpr int64_t kWords = 16 << 10;

  SUBBYTE_HOST_DEVICE static int64_t flag(int phase, int cta, int rank) {
    return kFlags + 4 * ((int64_t{phase} * kPartCtas + cta) * PeerGroup::kMaxRanks + rank);
  }
  SUBBYTE_HOST_DEVICE static int64_t words(uint32_t round, int cta, int rank, int ranks) {
    return kWords + 16 * (((int64_t{round % 2} * kWordCtas + cta) * ranks + rank) * kCtaWords);
  }
  SUBBYTE_HOST_DEVICE static int64_t part(int phase, int cta, int rank, int ranks) {
    return words(0, 2 * kWordCtas, 0, ranks) +
           ((int64_t{phase} * kPartCtas + cta) * ranks + rank) * kPartBytes;
  }
  SUBBYTE_HOST_DEVICE static int64_t sums(uint32_t round, int rank, int ranks) {
    return part(2, 0, 0, ranks) + 8 * (int64_t{round % 2} * ranks + rank) * kStepNumbers;
  }
  SUBBYTE_HOST_DEVICE static int64_t bytes(int ranks) { return sums(1, ranks, ranks); }
};

}  // namespace subbyte::cuda
