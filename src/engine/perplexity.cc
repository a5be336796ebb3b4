#include "engine/perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace subbyte {
namespace {

/// -log softmax(logits)[target].
double negative_log_likelihood(std::span<const float> logits, int32_t target) {
  const double max = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - max);
  return std::log(sum) + max - logits[target];
}

}  // namespace

Result<Perplexity> perplexity(const Model& model, Backend& backend, Element kv_type,
                              std::span<const int32_t> tokens, int64_t window,
                              const std::function<void(int64_t, int64_t, double)>& progress) {
  if (tokens.size() < 2) {
    return Error{"perplexity.too_short", "the text has fewer than two tokens"};
  }
  if (window < 2) {
    return Error{
        "perplexity.window",
        fmt::format("a window of {} tokens predicts nothing: expected at least 2", window)};
  }
  const auto count = static_cast<int64_t>(tokens.size());
  // All at once: a token is looked up as a target one chunk before the model sees it.
  SUBBYTE_CHECK(model.check_tokens(tokens));
  Perplexity result;
  window = std::min(window, count);
  SUBBYTE_TRY(KvPool pool, model.make_kv_pool(backend, kv_type, {.positions = window}));
  Sequence sequence(pool, window);
  Logits logits;
  for (int64_t begin = 0; begin + 1 < count; begin += window) {
    const int64_t end = std::min(begin + window, count);
    sequence.truncate(0);
    for (int64_t first = begin; first < end; first += kScoredChunk) {
      const int64_t chunk = std::min(kScoredChunk, end - first);
      const Part part = {&sequence, tokens.subspan(first, chunk), chunk};
      SUBBYTE_CHECK(model.forward(backend, {{&part, 1}}, logits));
      for (int64_t i = 0; i < chunk && first + i + 1 < end; ++i) {
        result.nats += negative_log_likelihood(logits.row(i), tokens[first + i + 1]);
        ++result.scored;
      }
      if (std::isfinite(result.nats)) continue;
      const Error error = {"perplexity.not_finite", "the model gave logits that are not finite"};
      if (sequence.rewind(sequence.length() - chunk) < first - begin) return error;
      return model.locate_not_finite(backend, {{&part, 1}}, error);
    }
    result.per_token = std::exp(result.nats / static_cast<double>(result.scored));
    if (progress) progress(end, count, result.per_token);
  }
  SUBBYTE_CHECK(model.verify_unchanged());
  return result;
}

}  // namespace subbyte
