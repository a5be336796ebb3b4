#pragma once
// Attention in the 16 bits of the activations, where the cache has the same type and heads have at
// most 128 elements: mma m16n8k16, keys and values by cp.async.

#include "kernels/cuda/ops/attention.h"

namespace subbyte::cuda {

bool serves_16bit_attention(const AttentionCall& call);

/// The kPrompt tasks of a call that is served.
void run_prompt_16bit(const AttentionCall& call, Stream stream);
/// The first `num_tasks` kSplit tasks, without merging.
void run_split_16bit(const AttentionCall& call, int64_t num_tasks, Stream stream);

}  // namespace subbyte::cuda
