#include "ops/token_choice.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>

#include "base/token_weight.h"

namespace subbyte {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::size_t kBlock = 128;  // logits of which only the largest is looked at first

// What every x86-64 machine has. Wider ones the compiler takes apart to single floats.
using Floats [[gnu::vector_size(16)]] = float;
using Masks [[gnu::vector_size(16)]] = int32_t;
constexpr std::size_t kLanes = sizeof(Floats) / sizeof(float);
constexpr std::size_t kChains = 4;  // none waits for the one before it

/// The largest of kBlock logits; infinity if one of them is NaN.
float largest_of(const float* logits) {
  const Floats limit = Floats{} + kInfinity;
  Floats top[kChains] = {-limit, -limit, -limit, -limit};
  Masks ordinary = ~Masks{};
  for (std::size_t i = 0; i < kBlock; i += kChains * kLanes) {
#pragma GCC unroll 4
    for (std::size_t c = 0; c < kChains; ++c) {
      Floats v;
      std::memcpy(&v, logits + i + c * kLanes, sizeof(v));
      ordinary &= v < limit;
      top[c] = v > top[c] ? v : top[c];
    }
  }
  top[0] = top[1] > top[0] ? top[1] : top[0];
  top[2] = top[3] > top[2] ? top[3] : top[2];
  top[0] = top[2] > top[0] ? top[2] : top[0];
  float largest = -kInfinity;
  for (std::size_t i = 0; i < kLanes; ++i) {
    if (ordinary[i] == 0) return kInfinity;
    largest = std::max(largest, top[0][i]);
  }
  return largest;
}

Error not_finite(std::span<const float> logits) {
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] < kInfinity) continue;
    return {"sampling.not_finite", std::string("the model gave ") +
                                       (logits[i] == kInfinity ? "inf" : "nan") +
                                       " as the logit of token " + std::to_string(i)};
  }
  return {"sampling.not_finite", "the model gave no finite logit"};
}

bool is_better(const TokenCandidate& a, const TokenCandidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
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
  largest_.clear();
  std::size_t i = 0;
  for (; i + kBlock <= logits.size(); i += kBlock) largest_.push_back(largest_of(&logits[i]));
  if (i < logits.size()) {
    std::array<float, kBlock> last;
    last.fill(-kInfinity);
    std::ranges::copy(logits.subspan(i), last.begin());
    largest_.push_back(largest_of(last.data()));
  }
  const auto best = std::ranges::max_element(largest_);
  if (best == largest_.end() || !std::isfinite(*best)) return not_finite(logits);
  return {};
}

/// As many blocks as tokens are wanted have a logit of `least` or more, so at least as many tokens.
void TokenChooser::collect(std::span<const float> logits, std::size_t wanted) {
  float least = -kInfinity;
  if (wanted < largest_.size()) {
    std::vector<float> sorted = largest_;
    const auto nth = sorted.begin() + static_cast<std::ptrdiff_t>(wanted) - 1;
    std::ranges::nth_element(sorted, nth, std::greater());
    least = *nth;
  }
  candidates_.clear();
  for (std::size_t block = 0; block < largest_.size(); ++block) {
    if (largest_[block] < least) continue;
    const std::size_t end = std::min(logits.size(), (block + 1) * kBlock);
    for (std::size_t i = block * kBlock; i < end; ++i) {
      if (logits[i] >= least) candidates_.push_back({static_cast<int32_t>(i), logits[i], 0});
    }
  }
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
  for (const LogitBias& bias : choice.biases) {
    if (bias.bias == 0) continue;
    if (LogitChange* const change = change_of(bias.token)) change->bias = bias.bias;
  }
  const std::span<const int32_t> history = choice.penalized();
  const auto num_read = std::ssize(history) - choice.num_generated;
  for (std::ptrdiff_t i = 0; i < std::ssize(history); ++i) {
    LogitChange* const change = change_of(history[i]);
    if (change == nullptr) continue;
    change->occurred = true;
    if (choice.counts_generated() && i >= num_read) ++change->count;
  }
}

/// Candidates that change, as they become, instead of those that were not yet changed.
void TokenChooser::change(std::span<const float> logits, const TokenChoice& choice) {
  if (changed_.empty()) return;
  const TokenPenalties penalties = {choice.repetition_penalty, choice.frequency_penalty,
                                    choice.presence_penalty};
  std::erase_if(candidates_, [&](const TokenCandidate& candidate) {
    return !changes_[candidate.token].is_none();
  });
  for (const int32_t token : changed_) {
    candidates_.push_back({token, changed_logit(logits[token], changes_[token], penalties), 0});
  }
}

/// As many of the best, the first of them in front and the others in no order.
void TokenChooser::keep_best(std::size_t wanted) {
  if (wanted < candidates_.size()) {
    const auto end = candidates_.begin() + static_cast<std::ptrdiff_t>(wanted);
    std::ranges::nth_element(candidates_, end, is_better);
    candidates_.resize(wanted);
  }
  std::iter_swap(candidates_.begin(), std::ranges::min_element(candidates_, is_better));
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
