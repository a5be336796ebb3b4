#pragma once
// Attention over keys and values that were made of latents (ExpandedKeys), by wgmma.
//
// A CTA has the 128 rows of a task for one head: two warpgroups of 64 rows multiply, and one thread
// of a third copies by TMA, in boxes of 64 numbers.
//
//   queries   [2][head_dim / 64][64 rows][64]
//   stages    keys [head_dim / 64][kKeys][64], values [value_dim / 64][kKeys][64]
//
// While a warpgroup turns scores into weights, its product of the weights and values before runs,
// and those of the other warpgroup.

#include "kernels/cuda/attention/attention.h"

namespace subbyte::cuda {

/// For GPUs with wgmma. False: it has no such heads. `num_tokens`: rows of qkv. Errors are left to
/// cudaGetLastError().
bool run_expanded_hopper(const AttentionCall& call, int64_t num_tokens, Stream stream);

}  // namespace subbyte::cuda
