#pragma once
// How likely a model held a token: the logarithm of the softmax of its logits, before any penalty,
// temperature or cut, as vLLM and OpenAI report it.

#include <cstdint>
#include <span>
#include <vector>

namespace subbyte {

struct TokenLogprob {
  int32_t token = 0;
  double logprob = 0;  // natural; -infinity where the logit is
};

struct Logprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;  // the most likely first, the lower id first on ties
};

/// Log probabilities of one row of logits [vocabulary] without NaN or +infinity; `token` is inside.
/// At most `num_top` alternatives, among which the token itself may be. Computed in double
/// precision.
Logprobs logprobs_of(std::span<const float> logits, int32_t token, int64_t num_top);

}  // namespace subbyte
