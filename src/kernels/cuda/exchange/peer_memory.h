#pragma once
// Allocates the memory of peer_group.h.

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "kernels/cuda/exchange/peer_group.h"

namespace subbyte::cuda {

/// That memory of GPUs of this process, which may use each other's from then on.
class PeerMemory {
 public:
  /// A rank for each device. Codes: cuda.peer_access names two GPUs of which one cannot reach the
  /// memory of the other; cuda.memory; device.ranks for fewer than two, more than kMaxRanks, or one
  /// twice.
  static Result<std::unique_ptr<PeerMemory>> connect(std::span<const int> devices);

  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;
  ~PeerMemory();

  PeerGroup of_rank(int rank) const;
  /// Code exchange.lost once a kernel of that rank has waited for another one in vain: its numbers
  /// are worth nothing since. Waits for the device.
  Status check(int rank) const;

 private:
  PeerMemory() = default;

  std::vector<int> devices_;
  std::vector<std::byte*> memory_;
};

}  // namespace subbyte::cuda
