#include "ops/part_choice.h"

#include <algorithm>
#include <limits>

#include "ops/candidates.h"

namespace subbyte {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace

int64_t candidates_of_part(const TokenChoice& choice) {
  if (choice.temperature == 0) return 1;
  return choice.top_k <= kMaxPartCandidates ? choice.top_k : 0;
}

LogitChange* PartChooser::change_of(int64_t i) {
  if (i < 0 || i >= std::ssize(changes_)) return nullptr;
  LogitChange& change = changes_[static_cast<std::size_t>(i)];
  if (change.is_none()) changed_.push_back(static_cast<int32_t>(i));
  return &change;
}

void PartChooser::find(std::span<const float> logits, int64_t first, const TokenChoice& choice,
                       std::span<PartCandidate> best) {
  find_largest(logits, largest_);
  if (std::ranges::find(largest_, kInfinity) != largest_.end()) {
    std::ranges::fill(best, PartCandidate{kNoToken, std::numeric_limits<float>::quiet_NaN()});
    return;
  }
  for (const int32_t i : changed_) changes_[i] = {};
  changed_.clear();
  changes_.resize(logits.size());
  note_changes(choice, [&](int32_t token) { return change_of(token - first); });
  collect_candidates(logits, largest_, best.size() + changed_.size(), candidates_);
  change_candidates(logits, choice, changes_, changed_, candidates_);
  keep_best_candidates(best.size(), candidates_);
  std::ranges::fill(best, PartCandidate{kNoToken, -kInfinity});
  std::ranges::transform(candidates_, best.begin(), [&](const TokenCandidate& one) {
    return PartCandidate{static_cast<int32_t>(first + one.token), one.logit};
  });
}

int32_t choose_of_parts(TokenChooser& chooser, const TokenChoice& choice,
                        std::span<PartCandidate> candidates) {
  std::ranges::sort(candidates, {}, &PartCandidate::token);
  std::vector<float> logits;
  for (const PartCandidate& one : candidates) logits.push_back(one.logit);
  TokenChoice among = choice;  // biases and penalties are in the logits
  among.repetition_penalty = 1;
  among.frequency_penalty = among.presence_penalty = 0;
  among.history = {};
  among.num_generated = 0;
  among.biases = {};
  const Result<int32_t> chosen = chooser.choose(logits, among);
  return chosen.ok() ? candidates[static_cast<std::size_t>(*chosen)].token : kNoToken;
}

}  // namespace subbyte
