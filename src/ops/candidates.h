#pragma once
// The steps of a choice (token_choice.h) that find which tokens may be chosen, of all logits or of
// a part of them (part_choice.h).

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/token_choice.h"

namespace subbyte {

/// The order of candidates, which has no ties.
bool is_better(const TokenCandidate& a, const TokenCandidate& b);

/// The largest logit of each block; infinity of a block that has NaN.
void find_largest(std::span<const float> logits, std::vector<float>& largest);

/// Makes candidates of tokens among which the `wanted` best are.
void collect_candidates(std::span<const float> logits, std::span<const float> largest,
                        std::size_t wanted, std::vector<TokenCandidate>& candidates);

/// Notes what changes the logits of tokens. `change_of` gives the place of a token's change, or
/// nullptr for one that nobody wants.
template <class ChangeOf>
void note_changes(const TokenChoice& choice, const ChangeOf& change_of) {
  for (const LogitBias& bias : choice.biases) {
    if (bias.bias == 0) continue;
    if (LogitChange* const change = change_of(bias.token)) change->bias = bias.bias;
  }
  const std::span<const int32_t> history = choice.penalized();
  const auto num_read = std::ssize(history) - choice.num_generated;
  for (std::ptrdiff_t i = 0; i < std::ssize(history); ++i) {
    LogitChange* const change = change_of(history[static_cast<std::size_t>(i)]);
    if (change == nullptr) continue;
    change->occurred = true;
    if (choice.counts_generated() && i >= num_read) ++change->count;
  }
}

/// Candidates that change, as they become, instead of those that were not yet changed. `changes` by
/// token, `changed` lists those that there are.
void change_candidates(std::span<const float> logits, const TokenChoice& choice,
                       std::span<const LogitChange> changes, std::span<const int32_t> changed,
                       std::vector<TokenCandidate>& candidates);

/// As many of the best, the first of them in front and the others in no order.
void keep_best_candidates(std::size_t wanted, std::vector<TokenCandidate>& candidates);

}  // namespace subbyte
