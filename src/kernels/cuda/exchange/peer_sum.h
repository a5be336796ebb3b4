#pragma once
// Sums over the GPUs of a group, in one kernel and in the order of ranks: ((x0 + x1) + x2) + ... in
// f32, rounded once, so that all ranks have equal bits. All ranks launch the same calls in the same
// order. Kernels that wait for a rank in vain give up after some seconds (PeerMemory::check).
//
// Numbers in 16 bits, or f32. Small sums go in words that say themselves that they are there:
// one trip over the link. Of larger ones each rank sums a part, and all get it: less to send, two
// trips.

#include "kernels/cuda/elementwise/norm.h"
#include "kernels/cuda/exchange/peer_group.h"

namespace subbyte::cuda {

struct PeerSumCall {
  void* y = nullptr;        // [size], may be x
  const void* x = nullptr;  // of this rank
  int64_t size = 0;
  Element element = Element::kF16;
};

/// Says whether sizes and addresses are such that run_peer_sum() has them: multiples of 16 bytes.
bool serves_peer_sum(const PeerSumCall& call);
/// Errors are left to cudaGetLastError().
void run_peer_sum(const PeerSumCall& call, const PeerGroup& group, Stream stream);

/// Says whether run_peer_sum_norm() has that call: without routes, in 16 bits, at most 128 rows, of
/// at most 8192 numbers in multiples of 8, and all addresses in multiples of 16 bytes.
bool serves_peer_sum_norm(const AddNormCall& call);
/// run_add_norm() of the sum of the `delta` of all ranks, rounded, in one kernel with that sum.
/// Errors are left to cudaGetLastError().
void run_peer_sum_norm(const AddNormCall& call, const PeerGroup& group, Stream stream);

}  // namespace subbyte::cuda
