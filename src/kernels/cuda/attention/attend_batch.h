#pragma once
// Single tokens of a batch: norms and positions of their heads, the cache, and attention, as one
// kernel where keys are not split.

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/rotate.h"

namespace subbyte::cuda {

/// Says whether there is such a kernel of heads of that size, so many of queries for one of keys.
constexpr bool serves_batch_heads(int64_t q_per_kv, int64_t head_dim) {
  return (head_dim == 64 || head_dim == 128) && q_per_kv <= 8;
}

/// Says whether there is such a kernel: of heads of 64 or 128 numbers, at most eight of queries for
/// one of keys, which turn after norms with weights or none, in the type of the cache.
bool serves_batch(const RotateCall& rotate, const AttentionCall& attention);

/// Does what run_rotate() and then run_attention() do for parts of one token each, but queries in
/// qkv stay as they were. Errors are left to cudaGetLastError().
void run_batch_attention(const RotateCall& rotate, const AttentionCall& attention,
                         int multiprocessors, Stream stream);

/// Runs the split tasks of it.
void run_batch_tasks(const RotateCall& rotate, const AttentionCall& attention, int64_t num_tasks,
                     int multiprocessors, Stream stream);

}  // namespace subbyte::cuda
