#pragma once
// Perplexity of a text: exp of the mean negative log likelihood of its tokens.

#include <cstdint>
#include <functional>
#include <span>

#include "engine/scored_windows.h"
#include "models/model.h"
#include "subbyte/answer.h"

namespace subbyte {

/// The tokens are cut into windows of `window` tokens that do not overlap; each window starts with
/// an empty context, so its first token is not scored. A last window of one token is left out.
/// `progress` is called with the tokens done, all, and the perplexity so far.
/// The cache holds keys and values as `kv_type`.
/// Codes: perplexity.too_short (fewer than two tokens), perplexity.window (below 2),
/// perplexity.not_finite, kv.memory, those of Model::forward.
Result<Perplexity> perplexity(
    const Model& model, Backend& backend, Element kv_type, std::span<const int32_t> tokens,
    int64_t window, const std::function<void(int64_t, int64_t, double)>& progress = nullptr);

}  // namespace subbyte
