#pragma once
// More of the memory by which GPUs of one group exchange numbers (peer_group.h), after the rest: of
// rows that are summed with the norm after them. It is zero at first.
//
//   rounds   [kCtas] how often the CTAs of this rank have exchanged rows
//   rows     [kPhases][kCtas][rank][kRowBytes] complements of numbers of 16 bits; zero until they
//            are there
//
// Rows of round k are cleared by who has read them in round k + 1, before it sends those of k + 2:
// so they are clear when another rank sends those of k + kPhases.

#include "kernels/cuda/exchange/peer_group.h"

namespace subbyte::cuda {

/// Where things are in the memory of a rank.
struct PeerRows {
  static constexpr int kPhases = 4;  // at least 3; rounds are counted modulo 2^32
  static constexpr int kCtas = 128;
  static constexpr int kRowBytes = 16 << 10;

  /// A number of 4 bytes, from the begin of the memory on.
  SUBBYTE_HOST_DEVICE static int counter(int cta, int ranks) {
    return static_cast<int>(PeerLayout::bytes(ranks) / 4) + cta;
  }
  SUBBYTE_HOST_DEVICE static int64_t row(uint32_t round, int cta, int rank, int ranks) {
    return PeerLayout::bytes(ranks) + 4 * kCtas +
           ((int64_t{round % kPhases} * kCtas + cta) * ranks + rank) * kRowBytes;
  }
  /// All memory of a rank.
  SUBBYTE_HOST_DEVICE static int64_t bytes(int ranks) { return row(0, kPhases * kCtas, 0, ranks); }
};

}  // namespace subbyte::cuda
