#pragma once
// Choosing the next token from logits. The order is that of Hugging Face and vLLM: repetition
// penalty, temperature, top-k, top-p, min-p, then one draw, the most likely token first. All
// decisions are those of base/token_weight.h, so every backend takes the same token of the same
// logits.

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"

namespace subbyte {

/// How one token is chosen. The caller draws the random number, so its stream does not depend on
/// the machine.
struct TokenChoice {
  double temperature = 0;              // 0: the most likely token (the lowest id on ties)
  int64_t top_k = 0;                   // 0: all
  double top_p = 1;                    // (0, 1], 1: all
  double min_p = 0;                    // [0, 1], relative to the most likely token; 0: all
  double repetition_penalty = 1;       // Keskar et al., "CTRL", 2019; > 0, 1: none
  double uniform = 0;                  // [0, 1), the draw
  std::span<const int32_t> history{};  // the tokens that the penalty applies to; those outside
                                       // of the vocabulary do not count
};

/// Instead of a token: a logit is NaN or +infinity, or all are -infinity.
inline constexpr int32_t kNoToken = -1;

/// The scalar choice, with memory that later choices use again.
class TokenChooser {
 public:
  /// Code sampling.not_finite when a logit is NaN or +infinity, or all are -infinity.
  Result<int32_t> choose(std::span<const float> logits, const TokenChoice& choice);

 private:
  struct Candidate {
    int32_t token;
    float logit;
    uint64_t weight;
  };

  /// Fills `largest_`.
  Status scan(std::span<const float> logits);
  /// Makes candidates of tokens among which the `wanted` best are.
  void collect(std::span<const float> logits, std::size_t wanted);
  std::size_t count_occurred(const TokenChoice& choice, std::size_t vocabulary);
  void penalize(std::span<const float> logits, double penalty);
  void keep_best(std::size_t wanted);
  int32_t draw(const TokenChoice& choice);

  std::vector<float> largest_;  // of each block of logits
  std::vector<int32_t> occurred_;
  std::vector<bool> has_occurred_;  // [token]
  std::vector<Candidate> candidates_;
};

}  // namespace subbyte
