#pragma once
// The logits after each of given tokens, some rows at a time: all of them may be larger than the
// model.

#include <cstdint>
#include <functional>
#include <span>

#include "engine/scored_windows.h"

namespace subbyte {

/// Takes the rows [tokens][vocabulary] of the next kScoredChunk tokens or fewer; an error ends the
/// computation.
using TakeLogits = std::function<Status(std::span<const float> rows)>;

/// Computes the logits of `ids`, at least one, from an empty context. The cache holds keys and
/// values as `kv_type`. Codes: logits.not_finite, kv.memory, those of Model::forward, of
/// Model::verify_unchanged and of `take`.
Status token_logits(const ScoredModel& model, Element kv_type, std::span<const int32_t> ids,
                    const TakeLogits& take);

}  // namespace subbyte
