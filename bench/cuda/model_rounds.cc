#include "bench/cuda/model_rounds.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/random.h"
#include "bench/cuda/timed_backend.h"
#include "bench/timing.h"
#include "engine/streams.h"
#include "engine/workload.h"

namespace subbyte::bench {
namespace {

constexpr int64_t kWarmUpSteps = 4;  // buffers grow, clocks rise

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

/// What the steps of a decode took.
struct StepTimes {
  std::vector<double> steps, submits, waits;

  void add(double step, const TimedBackend& backend) {
    steps.push_back(step);
    submits.push_back(backend.submit_seconds());
    waits.push_back(backend.wait_seconds());
  }
};

}  // namespace

Result<DecodeFigures> measure_decode(const Model& model, Backend& backend, const DecodeRun& run) {
  const Streams::Size size = {run.sequences, run.context, std::max(run.steps, kWarmUpSteps)};
  SUBBYTE_TRY(KvPool pool, model.make_kv_pool(backend, Element::kF16, Streams::cache_size(size)));
  TimedBackend timed(backend);
  Streams streams(model, timed, pool, size);
  SUBBYTE_CHECK(streams.fill_contexts());
  SUBBYTE_CHECK(streams.generate(kWarmUpSteps));
  StepTimes times;
  std::vector<double> rates;
  for (int i = 0; i < run.rounds; ++i) {
    double before = now();
    const auto on_step = [&] {
      const double end = now();
      times.add(end - std::exchange(before, end), timed);
    };
    SUBBYTE_TRY(const double seconds, streams.generate(run.steps, on_step, run.in_flight));
    rates.push_back(static_cast<double>(run.sequences * run.steps) / seconds);
  }
  const int64_t positions = run.context + (run.steps + 1) / 2;  // of a sequence, in the mean
  const int64_t cache_bytes =
      run.sequences * cache_read_bytes(pool.layout(), pool.type(), positions);
  return DecodeFigures{
      median(rates),
      median(times.steps),
      median(times.submits),
      median(times.waits),
      static_cast<double>(model.bytes_per_token()) + static_cast<double>(cache_bytes),
      backend.last_step()};
}

Result<double> measure_prefill(const Model& model, Backend& backend, const PrefillRun& run) {
  SUBBYTE_TRY(KvPool pool, model.make_kv_pool(backend, Element::kF16, {run.tokens}));
  Sequence sequence(pool, run.tokens);
  Random random(1);
  const std::vector<int32_t> tokens = random_tokens(model, run.tokens, random);
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
