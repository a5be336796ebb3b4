#pragma once
// Attention over keys and values that were made of latents (ExpandedKeys), by wgmma
// (hopper_attention.cuh).

#include "kernels/cuda/attention/attention.h"

namespace subbyte::cuda {

/// For GPUs with wgmma. False: it has no such heads. `num_tokens`: rows of qkv. Errors are left to
/// cudaGetLastError().
bool run_expanded_hopper(const AttentionCall& call, int64_t num_tokens, Stream stream);

}  // namespace subbyte::cuda
