#pragma once
// unsloth makes modules of the experts of gpt-oss, so that other software quantizes them (its
// checkpoints in 4 bits, and merges of adapters with them), with names that transformers does not
// know. The bytes are those of joined matrices, rows of gate and up in turns.
//
//   mlp.experts.gate_up_projs.E.weight, .bias    mlp.experts.E.gate_up_proj.weight, .bias
//   mlp.experts.down_projs.E.weight, .bias       mlp.experts.E.down_proj.weight, .bias
//   mlp.router.linear.weight, .bias              mlp.router.weight, .bias

#include "checkpoints/containers/openai_names.h"

namespace subbyte {

bool has_unsloth_names(const TensorMap& tensors);

/// The tensors under names that models know; others keep theirs. Code index.tensor_twice.
Result<TensorMap> without_unsloth_names(const TensorMap& tensors);

}  // namespace subbyte
