#pragma once
// How likely a model held a token: the logarithm of the softmax of its logits, before any penalty,
// temperature or cut, as vLLM and OpenAI report it.

#include <cstdint>
#include <span>

#include "subbyte/answer.h"

namespace subbyte {

/// Log probabilities of one row of logits [vocabulary] without NaN or +infinity; `token` is inside.
/// At most `num_top` alternatives, among which the token itself may be. Computed in double
/// precision.
Logprobs logprobs_of(std::span<const float> logits, int32_t token, int64_t num_top);

}  // namespace subbyte
