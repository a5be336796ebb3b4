#pragma once
// The choice of a token (token_choice.h) where the logits lie in parts that several have: each
// gives the best of its own, and what is chosen among these is the token that is chosen of all.
//
//   part 0   logits of tokens 0 to 3     best 2:  token 3: 1.5   token 0: 1.1
//   part 1   logits of tokens 4 to 7     best 2:  token 4: 1.9   token 6: 0.2
//   chosen   with top-k 2: among tokens 4 and 3
//
// That is so where as many of each part are given as may be chosen among, and their logits are
// those with biases and penalties. A draw without top-k may fall on any token: it takes all logits.

#include <cstdint>
#include <span>
#include <vector>

#include "ops/token_choice.h"

namespace subbyte {

/// A candidate as parts give it to each other.
struct PartCandidate {
  int32_t token = kNoToken;
  float logit = 0;
};

/// Candidates that a part gives at most; with a larger top-k all logits are fewer bytes, or nearly.
inline constexpr int64_t kMaxPartCandidates = 1024;

/// Says how many of the best of each part say which token is chosen; 0: it takes all logits.
int64_t candidates_of_part(const TokenChoice& choice);

/// Candidates of parts, with memory that later choices use again.
class PartChooser {
 public:
  /// Fills `best` with the best of `logits`, which are those of the tokens from `first` on. Where
  /// there are fewer, the others are -infinity; where one is NaN or +infinity, all are NaN.
  void find(std::span<const float> logits, int64_t first, const TokenChoice& choice,
            std::span<PartCandidate> best);

 private:
  LogitChange* change_of(int64_t i);

  std::vector<float> largest_;
  std::vector<LogitChange> changes_;
  std::vector<int32_t> changed_;
  std::vector<TokenCandidate> candidates_;
};

/// The token that `chooser` takes among the candidates of all parts, or kNoToken. They are put into
/// the order of their tokens.
int32_t choose_of_parts(TokenChooser& chooser, const TokenChoice& choice,
                        std::span<PartCandidate> candidates);

}  // namespace subbyte
