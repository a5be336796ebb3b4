#pragma once
// Choosing the next token from logits. The order is that of vLLM: biases, repetition, frequency and
// presence penalty, temperature, top-k, top-p, min-p, then one draw, the most likely token first.
// All decisions are those of base/token_weight.h, so every backend takes the same token of the same
// logits.

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/token_weight.h"
#include "subbyte/sampling.h"

namespace subbyte {

/// Biases that one request may have.
inline constexpr int64_t kMaxBiases = 1024;

/// How one token is chosen. The caller draws the random number, so its stream does not depend on
/// the machine.
struct TokenChoice {
  double temperature = 0;               // 0: the most likely token (the lowest id on ties)
  int64_t top_k = 0;                    // 0: all
  double top_p = 1;                     // (0, 1], 1: all
  double min_p = 0;                     // [0, 1], relative to the most likely token; 0: all
  double repetition_penalty = 1;        // > 0, 1: none
  double frequency_penalty = 0;         // 0: none
  double presence_penalty = 0;          // 0: none
  double uniform = 0;                   // [0, 1), the draw
  std::span<const int32_t> history{};   // the tokens that the repetition penalty applies to; those
                                        // outside of the vocabulary do not count
  int64_t num_generated = 0;            // the last so many of them count for the other penalties
  std::span<const LogitBias> biases{};  // no token twice

  bool counts_generated() const { return frequency_penalty != 0 || presence_penalty != 0; }
  bool has_penalty() const { return repetition_penalty != 1 || counts_generated(); }
  /// The tokens of the history that some penalty applies to.
  std::span<const int32_t> penalized() const {
    if (repetition_penalty != 1) return history;
    return history.last(counts_generated() ? static_cast<std::size_t>(num_generated) : 0);
  }
};

/// Instead of a token: a logit is NaN or +infinity, or all are -infinity, perhaps by their biases.
inline constexpr int32_t kNoToken = -1;

/// Sets the weights of candidates beside the best logit; their sum.
using WeighTokens = uint64_t (*)(TokenCandidate* candidates, int64_t count, float best,
                                 double temperature);
uint64_t weigh_tokens(TokenCandidate* candidates, int64_t count, float best, double temperature);

/// The choice on a processor, with memory that later choices use again.
class TokenChooser {
 public:
  /// `weigh`: the same bits as weigh_tokens().
  explicit TokenChooser(WeighTokens weigh = weigh_tokens) : weigh_(weigh) {}

  /// Code sampling.not_finite when a logit is NaN or +infinity, or all are -infinity;
  /// sampling.no_token when biases leave none.
  Result<int32_t> choose(std::span<const float> logits, const TokenChoice& choice);

 private:
  /// Fills `largest_`.
  Status scan(std::span<const float> logits);
  /// Makes candidates of tokens among which the `wanted` best are.
  void collect(std::span<const float> logits, std::size_t wanted);
  void find_changes(const TokenChoice& choice, std::size_t vocabulary);
  LogitChange* change_of(int32_t token);
  void change(std::span<const float> logits, const TokenChoice& choice);
  void keep_best(std::size_t wanted);
  int32_t draw(const TokenChoice& choice);

  WeighTokens weigh_;
  std::vector<float> largest_;        // of each block of logits
  std::vector<LogitChange> changes_;  // [token]
  std::vector<int32_t> changed_;      // tokens with a change, each once
  std::vector<TokenCandidate> candidates_;
};

}  // namespace subbyte
