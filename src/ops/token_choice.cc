#include "ops/token_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/token_weight.h"
#include "ops/candidates.h"

namespace subbyte {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Error not_finite(std::span<const float> logits) {
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] < kInfinity) continue;
    return {"sampling.not_finite", std::string("the model gave ") +
                                       (logits[i] == kInfinity ? "inf" : "nan") +
                                       " as the logit of token " + std::to_string(i)};
  }
  return {"sampling.not_finite", "the model gave no finite logit"};
}

/// Puts the best in front, in no order but for the last of them: with that one the sum of the
/// weights reaches `wanted`, which all together do. How many those are.
std::size_t put_reaching_in_front(std::vector<TokenCandidate>& candidates, uint64_t wanted) {
  constexpr std::ptrdiff_t kFew = 16;
  auto first = candidates.begin();
  auto end = candidates.end();
  while (end - first > kFew) {
    const TokenCandidate& a = *first;
    const TokenCandidate& b = first[(end - first) / 2];
    const TokenCandidate& c = end[-1];
    const bool is_order = is_better(a, b);  // neither the best nor the worst, so both parts shrink
    const TokenCandidate& better = is_order ? a : b;
    const TokenCandidate& worse = is_order ? b : a;
    const TokenCandidate middle = is_better(c, better) ? better : is_better(c, worse) ? c : worse;
    uint64_t sum = 0;
    const auto next = std::partition(first, end, [&](const TokenCandidate& one) {
      const bool is_in_front = !is_better(middle, one);
      if (is_in_front) sum += one.weight;
      return is_in_front;
    });
    if (sum >= wanted) {
      end = next;
    } else {
      wanted -= sum;
      first = next;
    }
  }
  std::sort(first, end, is_better);
  while (first->weight < wanted && end - first > 1) wanted -= (first++)->weight;
  return static_cast<std::size_t>(first - candidates.begin()) + 1;
}

}  // namespace

uint64_t weigh_tokens(TokenCandidate* candidates, int64_t count, float best, double temperature) {
  uint64_t total = 0;
  for (TokenCandidate& candidate : std::span(candidates, static_cast<std::size_t>(count))) {
    candidate.weight = token_weight(candidate.logit, best, temperature);
    total += candidate.weight;
  }
  return total;
}

Status TokenChooser::scan(std::span<const float> logits) {
  find_largest(logits, largest_);
  const auto best = std::ranges::max_element(largest_);
  if (best == largest_.end() || !std::isfinite(*best)) return not_finite(logits);
  return {};
}

void TokenChooser::collect(std::span<const float> logits, std::size_t wanted) {
  collect_candidates(logits, largest_, wanted, candidates_);
}

/// Where to put a change of a token of the vocabulary, which is listed; nullptr for others.
LogitChange* TokenChooser::change_of(int32_t token) {
  if (token < 0 || static_cast<std::size_t>(token) >= changes_.size()) return nullptr;
  LogitChange& change = changes_[token];
  if (change.is_none()) changed_.push_back(token);
  return &change;
}

/// Fills `changes_` and lists their tokens.
void TokenChooser::find_changes(const TokenChoice& choice, std::size_t vocabulary) {
  for (const int32_t token : changed_) changes_[token] = {};
  changed_.clear();
  changes_.resize(vocabulary);
  note_changes(choice, [this](int32_t token) { return change_of(token); });
}

void TokenChooser::change(std::span<const float> logits, const TokenChoice& choice) {
  change_candidates(logits, choice, changes_, changed_, candidates_);
}

void TokenChooser::keep_best(std::size_t wanted) {
  keep_best_candidates(wanted, candidates_);
}

/// The smallest set of the best that reaches top_p, without those below min_p of the best, and the
/// token of it that the draw falls on. Sums of weights have no order, so neither need candidates.
int32_t TokenChooser::draw(const TokenChoice& choice) {
  const uint64_t total = weigh_(candidates_.data(), std::ssize(candidates_),
                                candidates_.front().logit, choice.temperature);
  const uint64_t wanted = weight_of_top_p(choice.top_p, total);
  if (wanted < total) candidates_.resize(put_reaching_in_front(candidates_, wanted));
  const uint64_t least = weight_of_min_p(choice.min_p);
  uint64_t kept = 0;
  std::erase_if(candidates_, [&](const TokenCandidate& candidate) {
    if (candidate.weight >= least) kept += candidate.weight;
    return candidate.weight < least;
  });
  const std::size_t drawn = put_reaching_in_front(candidates_, drawn_weight(choice.uniform, kept));
  return candidates_[drawn - 1].token;
}

Result<int32_t> TokenChooser::choose(std::span<const float> logits, const TokenChoice& choice) {
  SUBBYTE_CHECK(scan(logits));
  const bool greedy = choice.temperature == 0;
  std::size_t wanted = greedy ? 1 : static_cast<std::size_t>(choice.top_k);
  if (wanted == 0 || wanted > logits.size()) wanted = logits.size();
  find_changes(choice, logits.size());
  // Those that change may leave the best.
  collect(logits, wanted + changed_.size());
  change(logits, choice);
  keep_best(wanted);
  if (candidates_.front().logit == -kInfinity) {
    return Error{"sampling.no_token", "the biases leave no token that could be chosen"};
  }
  return greedy ? candidates_.front().token : draw(choice);
}

}  // namespace subbyte
