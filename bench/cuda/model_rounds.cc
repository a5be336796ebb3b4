#include "bench/cuda/model_rounds.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/random.h"
#include "bench/cuda/timed_backend.h"
#include "bench/timing.h"
#include "engine/step_queue.h"

namespace subbyte::bench {
namespace {

constexpr int64_t kWarmUpSteps = 4;  // buffers grow, clocks rise
constexpr int64_t kPromptStep = 4096;

std::vector<int32_t> random_tokens(const Model& model, int64_t count, uint64_t seed) {
  Random random(seed);
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) {
    token = static_cast<int32_t>(random.below(model.config().vocab_size));
  }
  return tokens;
}

/// Appends tokens to one sequence in steps of at most `chunk`, and lets the backend choose the most
/// likely token after them.
Status append(const Model& model, Backend& backend, Sequence& sequence,
              std::span<const int32_t> tokens, int64_t chunk, Logits& logits) {
  for (int64_t at = 0; at < std::ssize(tokens); at += chunk) {
    const int64_t count = std::min(chunk, std::ssize(tokens) - at);
    const bool is_last = at + count == std::ssize(tokens);
    Part part = {&sequence, tokens.subspan(at, count), 0};
    if (is_last) part.choice = TokenChoice{};
    SUBBYTE_CHECK(model.forward(backend, {{&part, 1}}, logits));
  }
  return {};
}

struct Stream {
  Sequence sequence;
  int32_t token = 0;  // the next one
};

/// The streams of a decode and what its steps took.
class Decode {
 public:
  Decode(const Model& model, Backend& backend, KvPool& pool, const DecodeRun& run)
      : model_(model), backend_(backend), run_(run) {
    for (int64_t i = 0; i < run.sequences; ++i) {
      streams_.push_back({Sequence(pool, run.context + std::max(run.steps, kWarmUpSteps)),
                          static_cast<int32_t>(i)});
    }
  }

  Status fill_contexts() {
    for (std::size_t i = 0; i < streams_.size(); ++i) SUBBYTE_CHECK(fill_context(i));
    return {};
  }

  /// Seconds of that many steps after the contexts.
  Result<double> round(int64_t steps) {
    SUBBYTE_CHECK(cut_to_contexts());
    StepQueue queue(model_, backend_);
    const double start = now();
    double popped = start;
    int64_t pushed = 0;
    for (int64_t i = 0; i < steps; ++i) {
      for (; pushed < steps && pushed < i + run_.in_flight && queue.has_room(); ++pushed) {
        SUBBYTE_CHECK(queue.push(parts(!queue.empty())));
      }
      SUBBYTE_CHECK(take(queue));
      const double before = std::exchange(popped, now());
      steps_.push_back(popped - before);
      submits_.push_back(backend_.submit_seconds());
      waits_.push_back(backend_.wait_seconds());
    }
    return popped - start;
  }

  void forget_times() {
    steps_.clear();
    submits_.clear();
    waits_.clear();
  }
  double step_seconds() const { return median(steps_); }
  double submit_seconds() const { return median(submits_); }
  double wait_seconds() const { return median(waits_); }

 private:
  Status fill_context(std::size_t i) {
    const auto tokens = random_tokens(model_, run_.context, 1 + i);
    return append(model_, backend_, streams_[i].sequence, tokens, kPromptStep, logits_);
  }

  /// Layers with a window may have given back what the token after a context sees.
  Status cut_to_contexts() {
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      Sequence& sequence = streams_[i].sequence;
      if (sequence.rewind(run_.context) == run_.context) continue;
      sequence.truncate(0);
      SUBBYTE_CHECK(fill_context(i));
    }
    return {};
  }

  /// `is_ahead`: of the step before this one no token is known.
  std::vector<Part> parts(bool is_ahead) {
    std::vector<Part> parts;
    for (Stream& stream : streams_) {
      if (is_ahead) stream.token = pending_token(std::ssize(parts));
      parts.push_back({&stream.sequence, {&stream.token, 1}, 0, TokenChoice{}});
    }
    return parts;
  }

  Status take(StepQueue& queue) {
    SUBBYTE_TRY(const std::vector<Part> done, queue.pop(logits_));
    for (std::size_t i = 0; i < done.size(); ++i) {
      streams_[i].token = logits_.tokens[i];
      queue.settle(streams_[i].sequence);
      if (streams_[i].token == kNoToken) {
        return Error{"sampling.not_finite", "expected finite logits, found others"};
      }
    }
    return {};
  }

  const Model& model_;
  TimedBackend backend_;
  const DecodeRun& run_;
  std::vector<Stream> streams_;
  Logits logits_;
  std::vector<double> steps_, submits_, waits_;
};

}  // namespace

Result<DecodeFigures> measure_decode(const Model& model, Backend& backend, const DecodeRun& run) {
  const int64_t most = kv_pages(run.context + std::max(run.steps, kWarmUpSteps));
  SUBBYTE_TRY(KvPool pool,
              model.make_kv_pool(backend, Element::kF16,
                                 {run.sequences * most * kPagePositions, run.sequences}));
  Decode decode(model, backend, pool, run);
  SUBBYTE_CHECK(decode.fill_contexts());
  SUBBYTE_CHECK(decode.round(kWarmUpSteps));
  decode.forget_times();
  std::vector<double> rates;
  for (int i = 0; i < run.rounds; ++i) {
    SUBBYTE_TRY(const double seconds, decode.round(run.steps));
    rates.push_back(static_cast<double>(run.sequences * run.steps) / seconds);
  }
  const int64_t positions = run.context + (run.steps + 1) / 2;  // of a sequence, in the mean
  const int64_t cache_bytes =
      run.sequences * cache_read_bytes(pool.layout(), pool.type(), positions);
  return DecodeFigures{
      median(rates),
      decode.step_seconds(),
      decode.submit_seconds(),
      decode.wait_seconds(),
      static_cast<double>(model.bytes_per_token()) + static_cast<double>(cache_bytes),
      backend.last_step()};
}

Result<double> measure_prefill(const Model& model, Backend& backend, const PrefillRun& run) {
  SUBBYTE_TRY(KvPool pool, model.make_kv_pool(backend, Element::kF16, {run.tokens}));
  Sequence sequence(pool, run.tokens);
  const auto tokens = random_tokens(model, run.tokens, 1);
  Logits logits;
  SUBBYTE_CHECK(append(model, backend, sequence, tokens, run.chunk, logits));  // to warm up
  std::vector<double> rates;
  for (int i = 0; i < run.rounds; ++i) {
    sequence.truncate(0);
    const double start = now();
    SUBBYTE_CHECK(append(model, backend, sequence, tokens, run.chunk, logits));
    rates.push_back(static_cast<double>(run.tokens) / (now() - start));
  }
  return median(rates);
}

}  // namespace subbyte::bench
