#pragma once
// kPrompt tasks of attention.h in 16 bits.

#include "kernels/cuda/ops/attention.h"

namespace subbyte::cuda {

/// False, and nothing is launched, where the types or the size of the heads are others.
bool run_prompt_attention(const AttentionCall& call, Stream stream);

}  // namespace subbyte::cuda
