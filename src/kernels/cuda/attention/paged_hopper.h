#pragma once
// Attention of prompts over the cache, by wgmma (hopper_attention.cuh).

#include "base/status.h"
#include "kernels/cuda/attention/attention.h"

namespace subbyte::cuda {

inline constexpr int kPagedTokens = 128;  // of a prompt task

/// Says whether there is such a kernel, on GPUs with wgmma: of heads of 128 numbers, without a
/// window or keys that were selected, in a cache of 16 bits.
constexpr bool serves_paged_hopper(const AttentionLayers& layers, int64_t head_dim, Element cache) {
  return head_dim == 128 && layers.window == 0 && layers.top == 0 &&
         (cache == Element::kF16 || cache == Element::kBF16);
}

/// The prompt tasks of a call whose activations have the type of the cache, of kPagedTokens each.
/// `num_tokens`: rows of qkv. Without sinks. Errors of the launch are left to cudaGetLastError();
/// what describes the matrices to it may fail as activations may (tensor_map.h).
Status run_paged_hopper(const AttentionCall& call, int64_t num_tokens, Stream stream);

}  // namespace subbyte::cuda
