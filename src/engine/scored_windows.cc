#include "engine/scored_windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

namespace subbyte {
namespace {

/// A model with the sequence that it reads.
struct Reader {
  ScoredModel scored;
  std::unique_ptr<KvPool> pool;
  std::unique_ptr<Sequence> sequence;
};

Result<std::vector<Reader>> make_readers(std::span<const ScoredModel> models, Element kv_type,
                                         int64_t window) {
  std::vector<Reader> readers;
  for (const ScoredModel& scored : models) {
    SUBBYTE_TRY(KvPool pool,
                scored.model.make_kv_pool(scored.backend, kv_type, {.positions = window}));
    Reader reader = {scored, std::make_unique<KvPool>(std::move(pool)), nullptr};
    reader.sequence = std::make_unique<Sequence>(*reader.pool, window);
    readers.push_back(std::move(reader));
  }
  return readers;
}

/// Names the first thing that is not finite, where the cache still has what led there.
Error not_finite(Reader& reader, std::span<const int32_t> chunk, int64_t position) {
  const auto size = std::ssize(chunk);
  const Part part = {reader.sequence.get(), chunk, size};
  const Error error = {"perplexity.not_finite", "the model gave logits that are not finite"};
  if (reader.sequence->rewind(reader.sequence->length() - size) < position) return error;
  return reader.scored.model.locate_not_finite(reader.scored.backend, {{&part, 1}}, error);
}

}  // namespace

double negative_log_likelihood(std::span<const float> logits, int32_t target) {
  const double max = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - max);
  return std::log(sum) + max - logits[target];
}

Status score_windows(std::span<const ScoredModel> models, Element kv_type,
                     std::span<const int32_t> tokens, int64_t window, const ScoreRows& score,
                     const std::function<void(int64_t)>& done) {
  if (tokens.size() < 2) {
    return Error{"perplexity.too_short", "the text has fewer than two tokens"};
  }
  if (window < 2) {
    return Error{
        "perplexity.window",
        fmt::format("a window of {} tokens predicts nothing: expected at least 2", window)};
  }
  const auto count = static_cast<int64_t>(tokens.size());
  // All at once: a token is looked up as a target one chunk before the model sees it.
  for (const ScoredModel& scored : models) SUBBYTE_CHECK(scored.model.check_tokens(tokens));
  window = std::min(window, count);
  SUBBYTE_TRY(std::vector<Reader> readers, make_readers(models, kv_type, window));
  std::vector<Logits> logits(models.size());
  for (int64_t begin = 0; begin + 1 < count; begin += window) {
    const int64_t end = std::min(begin + window, count);
    for (Reader& reader : readers) reader.sequence->begin(end - begin);
    for (int64_t first = begin; first < end; first += kScoredChunk) {
      const auto chunk = tokens.subspan(first, std::min(kScoredChunk, end - first));
      for (std::size_t i = 0; i < readers.size(); ++i) {
        const Part part = {readers[i].sequence.get(), chunk, std::ssize(chunk)};
        SUBBYTE_CHECK(
            readers[i].scored.model.forward(readers[i].scored.backend, {{&part, 1}}, logits[i]));
      }
      const int64_t targets = std::min(std::ssize(chunk), end - first - 1);
      const auto bad = score(logits, tokens.subspan(first + 1, targets));
      if (bad) return not_finite(readers[*bad], chunk, first - begin);
    }
    done(end);
  }
  for (const ScoredModel& scored : models) SUBBYTE_CHECK(scored.model.verify_unchanged());
  return {};
}

}  // namespace subbyte
