#include "engine/perplexity.h"

#include <cmath>

namespace subbyte {

Result<Perplexity> perplexity(const Model& model, Backend& backend, KvType kv_type,
                              std::span<const int32_t> tokens, int64_t window,
                              const std::function<void(int64_t, int64_t, double)>& progress) {
  Perplexity result;
  const ScoredModel scored = {model, backend};
  const ScoreRows score = [&](std::span<const Logits> logits, std::span<const int32_t> targets) {
    for (std::size_t i = 0; i < targets.size(); ++i) {
      result.nats +=
          negative_log_likelihood(logits.front().row(static_cast<int64_t>(i)), targets[i]);
      ++result.scored;
    }
    return std::isfinite(result.nats) ? std::nullopt : std::optional<std::size_t>(0);
  };
  SUBBYTE_CHECK(score_windows({&scored, 1}, kv_type, tokens, window, score, [&](int64_t done) {
    result.per_token = std::exp(result.nats / static_cast<double>(result.scored));
    if (progress) progress(done, std::ssize(tokens), result.per_token);
  }));
  return result;
}

}  // namespace subbyte
