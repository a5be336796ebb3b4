#include "engine/token_logits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace subbyte {
namespace {

/// As a scheduler refuses them: the tokens of `part`, of which the first is `begin`, have logits
/// that are no numbers to go on with.
Status check_finite(const ScoredModel& model, const Part& part, int64_t begin,
                    const Logits& logits) {
  for (int64_t i = 0; i < std::ssize(part.tokens); ++i) {
    if (std::ranges::all_of(logits.row(i), [](float value) { return std::isfinite(value); })) {
      continue;
    }
    const Error error = {
        "logits.not_finite",
        fmt::format("expected finite logits, found NaN or infinity in those of token {}, id {}",
                    begin + i, part.tokens[i])};
    if (part.sequence->rewind(part.sequence->length() - std::ssize(part.tokens)) < begin)
      return error;
    return model.model.locate_not_finite(model.backend, {{&part, 1}}, error);
  }
  return {};
}

}  // namespace

Status token_logits(const ScoredModel& model, Element kv_type, std::span<const int32_t> ids,
                    const TakeLogits& take) {
  const auto count = std::ssize(ids);
  SUBBYTE_TRY(KvPool pool, model.model.make_kv_pool(model.backend, kv_type, {.positions = count}));
  Sequence sequence(pool, count);
  Logits logits;
  for (int64_t begin = 0; begin < count; begin += kScoredChunk) {
    const int64_t size = std::min(kScoredChunk, count - begin);
    const Part part = {&sequence, ids.subspan(begin, size), size};
    SUBBYTE_CHECK(model.model.forward(model.backend, {{&part, 1}}, logits));
    SUBBYTE_CHECK(check_finite(model, part, begin, logits));
    SUBBYTE_CHECK(take(logits.values));
  }
  return model.model.verify_unchanged();
}

}  // namespace subbyte
