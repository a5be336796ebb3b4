#pragma once
// OpenAI's own directory of gpt-oss ("original/" of the published models) has names of its own for
// the tensors that transformers knows. The bytes are the same and stay where they are; only
// queries, keys and values, which are one tensor there, become three parts of it.
//
//   embedding.weight, unembedding.weight    model.embed_tokens.weight, lm_head.weight
//   norm.scale                              model.norm.weight
//   block.N.                                model.layers.N.
//     attn.norm.scale                         input_layernorm.weight
//     attn.qkv.weight [q + 2 kv, hidden]      self_attn.{q,k,v}_proj.weight; .bias likewise
//     attn.out.*, attn.sinks                  self_attn.o_proj.*, self_attn.sinks
//     mlp.norm.scale, mlp.gate.*              post_attention_layernorm.weight, mlp.router.*
//     mlp.mlp1_weight.blocks, .scales         mlp.experts.gate_up_proj.blocks, .scales
//     mlp.mlp1_bias                           mlp.experts.gate_up_proj_bias
//     mlp.mlp2_*                              mlp.experts.down_proj likewise

#include <string>
#include <string_view>

#include "base/status.h"
#include "checkpoints/containers/safetensors.h"

namespace subbyte {

bool has_openai_names(const TensorMap& tensors);

/// Adds a tensor under its new name. Code index.tensor_twice where that is taken; `whose` are the
/// names that it had.
Status add_renamed(TensorMap& to, FileTensor tensor, std::string_view whose);

/// The tensors under the names of transformers; others keep theirs. Codes: import.missing and
/// import.shape where queries, keys and values cannot be told apart, index.tensor_twice where two
/// tensors would have one name.
Result<TensorMap> with_hugging_face_names(const TensorMap& tensors);

}  // namespace subbyte
