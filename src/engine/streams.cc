#include "engine/streams.h"

#include <chrono>

#include "base/random.h"
#include "engine/workload.h"

namespace subbyte {

CacheSize Streams::cache_size(const Size& size) {
  const int64_t pages = kv_pages(size.context + size.steps);
  return {.positions = size.count * pages * kPagePositions, .sequences = size.count};
}

Streams::Streams(const Model& model, Backend& backend, KvPool& pool, const Size& size)
    : model_(model), backend_(backend), context_(size.context) {
  for (int64_t i = 0; i < size.count; ++i) {
    const auto token = static_cast<int32_t>(i % model.config().vocab_size);
    streams_.push_back({Sequence(pool, size.context + size.steps), token, token});
  }
}

Status Streams::fill_contexts() {
  for (std::size_t i = 0; i < streams_.size(); ++i) SUBBYTE_CHECK(fill_context(i));
  return {};
}

Result<double> Streams::generate(int64_t steps, const std::function<void()>& on_step,
                                 int64_t in_flight) {
  SUBBYTE_CHECK(cut_to_contexts());
  StepQueue queue(model_, backend_);
  const auto start = std::chrono::steady_clock::now();
  int64_t pushed = 0;
  for (int64_t i = 0; i < steps; ++i) {
    for (; pushed < steps && pushed - i < in_flight && queue.has_room(); ++pushed) {
      SUBBYTE_CHECK(queue.push(parts(!queue.empty())));
    }
    SUBBYTE_CHECK(take(queue));
    if (on_step) on_step();
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Status Streams::fill_context(std::size_t i) {
  Random random(1 + i);
  const std::vector<int32_t> tokens = random_tokens(model_, context_, random);
  return append_tokens(model_, backend_, streams_[i].sequence, tokens);
}

/// Layers with a window may have given back what the token after a context sees.
Status Streams::cut_to_contexts() {
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    Sequence& sequence = streams_[i].sequence;
    if (sequence.rewind(context_) == context_) continue;
    sequence.truncate(0);
    SUBBYTE_CHECK(fill_context(i));
  }
  return {};
}

/// `is_ahead`: of the step before this one no token is known.
std::vector<Part> Streams::parts(bool is_ahead) {
  std::vector<Part> parts;
  for (Stream& stream : streams_) {
    if (is_ahead) stream.token = pending_token(std::ssize(parts));
    parts.push_back({&stream.sequence, {&stream.token, 1}, 0, TokenChoice{}});
  }
  return parts;
}

Status Streams::take(StepQueue& queue) {
  SUBBYTE_TRY(const std::vector<Part> done, queue.pop(logits_));
  for (std::size_t i = 0; i < done.size(); ++i) {
    Stream& stream = streams_[i];
    stream.token = logits_.tokens[i];
    queue.settle(stream.sequence);
    if (stream.token == kNoToken) return locate_not_finite(stream, queue);
    stream.known = stream.token;
  }
  return {};
}

/// The step that has failed is computed anew.
Error Streams::locate_not_finite(Stream& stream, StepQueue& queue) {
  const Error error = {"sampling.not_finite", "expected finite logits, found others"};
  queue.clear();
  const int64_t before = stream.sequence.length() - 1;
  if (!stream.sequence.holds(before)) return error;
  stream.sequence.truncate(before);
  const Part again = {&stream.sequence, {&stream.known, 1}, 1};
  return model_.locate_not_finite(backend_, {{&again, 1}}, error);
}

}  // namespace subbyte
