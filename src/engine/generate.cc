#include "engine/generate.h"

#include <chrono>

namespace subbyte {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

double GenerateStats::prefill_tokens_per_second() const {
  return prefill_seconds > 0 ? static_cast<double>(prompt_tokens) / prefill_seconds : 0;
}

double GenerateStats::decode_tokens_per_second() const {
  if (decode_seconds <= 0 || generated_tokens < 2) return 0;
  return static_cast<double>(generated_tokens - 1) / decode_seconds;
}

Result<GenerateStats> generate(const Model& model, Backend& backend, Sequence& sequence,
                               std::span<const int32_t> prompt, const GenerateOptions& options,
                               const OnToken& on_token, const std::function<bool()>& goes_on) {
  GenerateStats stats;
  stats.prompt_tokens = std::ssize(prompt);
  if (prompt.empty()) return Error{"generate.empty_prompt", "the prompt has no tokens"};
  if (options.max_tokens == 0) return stats;

  SUBBYTE_CHECK(model.check_tokens(prompt));  // of all of it, before anything is computed
  SUBBYTE_CHECK(sequence.reserve(stats.prompt_tokens));
  Generation generation(sequence, prompt, options);
  Logits logits;
  stats.reason = StopReason::kCaller;
  auto start = Clock::now();
  while (!goes_on || goes_on()) {
    const Part part = generation.next(backend.prompt_chunk());
    SUBBYTE_CHECK(model.forward(backend, {{&part, 1}}, logits));
    if (!part.choice) continue;
    if (stats.generated_tokens == 0) {
      stats.prefill_seconds = seconds_since(start);
      start = Clock::now();
    }
    const Result<Generation::Event> accepted = generation.accept(logits.tokens[0]);
    if (!accepted.ok()) return model.locate_not_finite(backend, {{&part, 1}}, accepted.error());
    const Generation::Event& event = *accepted;
    stats.generated_tokens = generation.generated_tokens();
    stats.decode_seconds = seconds_since(start);
    if (event.token && !on_token(*event.token)) break;
    if (event.stop) {
      stats.reason = *event.stop;
      break;
    }
  }
  SUBBYTE_CHECK(model.verify_unchanged());
  return stats;
}

}  // namespace subbyte
