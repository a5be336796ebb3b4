#include "engine/logprobs.h"

#include <algorithm>
#include <cmath>

namespace subbyte {

Logprobs logprobs_of(std::span<const float> logits, int32_t token, int64_t num_top) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  const double normalizer = largest + std::log(sum);
  const auto entry = [&](int32_t id) { return TokenLogprob{id, logits[id] - normalizer}; };

  // The best so far in order: alternatives are few, and most logits are below the last of them.
  std::vector<int32_t> best;
  const auto is_better = [&](int32_t a, int32_t b) { return logits[a] > logits[b]; };
  for (int32_t id = 0; num_top > 0 && id < std::ssize(logits); ++id) {
    const bool is_full = std::ssize(best) == num_top;
    if (is_full && !is_better(id, best.back())) continue;
    if (is_full) best.pop_back();
    best.insert(std::ranges::upper_bound(best, id, is_better), id);
  }
  Logprobs result = {entry(token), {}};
  for (const int32_t id : best) result.top.push_back(entry(id));
  return result;
}

}  // namespace subbyte
