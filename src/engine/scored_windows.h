#pragma once
// Walks a text through one or several models in windows that do not overlap, and hands out the
// logits that are to be judged: what perplexity and divergence share.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "models/model.h"

namespace subbyte {

/// Tokens whose logits are computed in one step: 128 rows of 150,000 logits are 77 MB.
inline constexpr int64_t kScoredChunk = 128;

struct ScoredModel {
  const Model& model;
  Backend& backend;
};

/// Judges rows of logits: row i of each model predicts targets[i]. Returns the index of a model
/// whose logits are not finite, if there is one.
using ScoreRows = std::function<std::optional<std::size_t>(std::span<const Logits> logits,
                                                           std::span<const int32_t> targets)>;

/// Each window starts with an empty context, so its first token is not scored; a last window of one
/// token is left out. `done` is called after each window with the tokens done.
/// Codes: perplexity.too_short (fewer than two tokens), perplexity.window (below 2),
/// perplexity.not_finite, kv.memory, those of Model::forward.
Status score_windows(std::span<const ScoredModel> models, KvType kv_type,
                     std::span<const int32_t> tokens, int64_t window, const ScoreRows& score,
                     const std::function<void(int64_t)>& done);

/// -log softmax(logits)[target].
double negative_log_likelihood(std::span<const float> logits, int32_t target);

}  // namespace subbyte
