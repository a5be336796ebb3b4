#pragma once
// The memory by which GPUs of one group exchange numbers in kernels (kernels/cuda/exchange/), where
// each rank is a process of its own on the same host: each shows its own to the others, which map
// it (CUDA's interprocess memory).

#include <memory>

#include "base/status.h"
#include "exchange/exchange.h"
#include "kernels/cuda/exchange/peer_rows.h"

namespace subbyte {

/// That memory, as one rank sees it.
struct RankMemory {
  cuda::PeerGroup group;
  std::shared_ptr<const void> memory;  // is there as long as somebody has this
};

/// All ranks make theirs at once, and let go of it at once. Codes: exchange.failed names a rank
/// that cannot, on rank 0 its own: cuda.peer_access, cuda.memory, device.ranks for more than
/// kMaxRanks or a GPU that two have; those of Exchange.
Result<RankMemory> connect_processes(int device, const std::shared_ptr<Exchange>& ranks);

}  // namespace subbyte
