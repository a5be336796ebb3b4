#include "engine/divergence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace subbyte {
namespace {

/// What one token says.
struct Token {
  double nats = 0;            // of the model
  double reference_nats = 0;  // -log of the probability of the next token
  double kl = 0;
  bool same_top = false;
};

double log_sum(std::span<const float> logits, double max) {
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - max);
  return std::log(sum) + max;
}

Token compare(std::span<const float> logits, std::span<const float> reference, int32_t target) {
  const auto top = std::ranges::max_element(logits);
  const auto reference_top = std::ranges::max_element(reference);
  const double sum = log_sum(logits, *top);
  const double reference_sum = log_sum(reference, *reference_top);
  Token token;
  token.nats = sum - logits[target];
  token.reference_nats = reference_sum - reference[target];
  token.same_top = top - logits.begin() == reference_top - reference.begin();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double log_p = reference[i] - reference_sum;
    token.kl += std::exp(log_p) * (log_p - (logits[i] - sum));
  }
  return token;
}

template <typename Value>
Estimate estimate(const std::vector<Token>& tokens, const Value& value) {
  const auto count = static_cast<double>(tokens.size());
  double sum = 0;
  for (const Token& token : tokens) sum += value(token);
  Estimate result = {sum / count, 0};
  double squares = 0;
  for (const Token& token : tokens) squares += std::pow(value(token) - result.value, 2);
  if (tokens.size() > 1) result.error = std::sqrt(squares / count / (count - 1));
  return result;
}

/// exp of an estimate, to the first order.
Estimate exp_of(const Estimate& log) {
  const double value = std::exp(log.value);
  return {value, value * log.error};
}

/// The value below which that share of the sorted ones lies, interpolated.
double quantile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const double above = place - std::floor(place);
  return (1 - above) * sorted[below] + above * sorted[std::min(below + 1, sorted.size() - 1)];
}

Divergence summary(const std::vector<Token>& tokens) {
  Divergence result;
  result.scored = std::ssize(tokens);
  result.perplexity = exp_of(estimate(tokens, [](const Token& t) { return t.nats; }));
  result.reference = exp_of(estimate(tokens, [](const Token& t) { return t.reference_nats; }));
  result.ratio = exp_of(estimate(tokens, [](const Token& t) { return t.nats - t.reference_nats; }));
  result.kl = estimate(tokens, [](const Token& t) { return t.kl; });
  result.same_top = estimate(tokens, [](const Token& t) { return t.same_top ? 1.0 : 0.0; });
  std::vector<double> sorted;
  for (const Token& token : tokens) sorted.push_back(token.kl);
  std::ranges::sort(sorted);
  result.kl_median = quantile(sorted, 0.5);
  result.kl_99 = quantile(sorted, 0.99);
  result.kl_999 = quantile(sorted, 0.999);
  result.kl_largest = sorted.back();
  return result;
}

}  // namespace

Result<Divergence> divergence(const ScoredModel& model, const ScoredModel& reference,
                              KvType kv_type, std::span<const int32_t> tokens, int64_t window,
                              const std::function<void(int64_t, int64_t, double)>& progress) {
  const int64_t vocabulary = model.model.config().vocab_size;
  if (vocabulary != reference.model.config().vocab_size) {
    return Error{"divergence.vocabulary",
                 fmt::format("expected a reference with {} tokens in its vocabulary, as the model "
                             "has, found {}",
                             vocabulary, reference.model.config().vocab_size)};
  }
  std::vector<Token> scored;
  double sum = 0;
  const ScoreRows score = [&](std::span<const Logits> logits,
                              std::span<const int32_t> targets) -> std::optional<std::size_t> {
    const std::size_t first = scored.size();
    scored.resize(first + targets.size());
    model.backend.host().parallel_for(std::ssize(targets), 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        scored[first + i] = compare(logits[0].row(i), logits[1].row(i), targets[i]);
      }
    });
    for (std::size_t i = first; i < scored.size(); ++i) {
      if (!std::isfinite(scored[i].nats)) return 0;
      if (!std::isfinite(scored[i].reference_nats)) return 1;
      sum += scored[i].kl;
    }
    return std::nullopt;
  };
  const ScoredModel both[] = {model, reference};
  SUBBYTE_CHECK(score_windows(both, kv_type, tokens, window, score, [&](int64_t done) {
    if (progress) progress(done, std::ssize(tokens), sum / static_cast<double>(scored.size()));
  }));
  return summary(scored);
}

}  // namespace subbyte
