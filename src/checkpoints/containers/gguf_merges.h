#pragma once
// Merges of a SentencePiece tokenizer, which has scores in their place.

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace subbyte {

/// The merges that make the pieces, first the one that is done first, as transformers derives them:
/// of every piece all cuts whose halves are pieces, by the score of the whole. `pieces` are UTF-8
/// and come once each; `scores` has one for each. Code gguf.tokenizer where pieces are too long.
Result<std::vector<std::pair<std::string_view, std::string_view>>> merges_of_scores(
    std::span<const std::string_view> pieces, std::span<const float> scores);

}  // namespace subbyte
