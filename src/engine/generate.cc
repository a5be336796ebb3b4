#include "engine/generate.h"

#include <chrono>

#include "engine/step_queue.h"

namespace subbyte {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// As many steps as the machine takes, as far as they can be told, and there are pages for them.
Status enqueue_steps(StepQueue& steps, Generation& generation, Sequence& sequence, int64_t chunk) {
  while (steps.has_room()) {
    if (steps.empty()) generation.choose_angles();
    if (generation.tokens_left() > 0) {
      SUBBYTE_CHECK(steps.push({generation.next(chunk)}));
    } else if (!steps.empty() && generation.can_go_ahead() && sequence.reserve(1).ok()) {
      SUBBYTE_CHECK(steps.push({generation.next_ahead(0)}));
    } else {
      break;
    }
  }
  return {};
}

}  // namespace

Result<SampleEnd> generate(const Model& model, Backend& backend, Sequence& sequence,
                           std::span<const int32_t> prompt, const GenerateOptions& options,
                           const OnToken& on_token, const std::function<bool()>& goes_on) {
  SampleEnd stats;
  stats.prompt_tokens = std::ssize(prompt);
  if (prompt.empty()) return Error{"generate.empty_prompt", "the prompt has no tokens"};
  if (options.max_tokens == 0) return stats;

  SUBBYTE_CHECK(model.check_tokens(prompt));  // of all of it, before anything is computed
  SUBBYTE_CHECK(sequence.reserve(stats.prompt_tokens));
  Generation generation(sequence, prompt, options);
  StepQueue steps(model, backend);
  Logits logits;
  stats.reason = StopReason::kCaller;
  auto start = Clock::now();
  while (!goes_on || goes_on()) {
    SUBBYTE_CHECK(enqueue_steps(steps, generation, sequence, backend.prompt_chunk()));
    SUBBYTE_TRY(const std::vector<Part> parts, steps.pop(logits));
    steps.settle(sequence);
    if (!parts.front().choice) continue;
    if (stats.generated_tokens == 0) {
      stats.prefill_seconds = seconds_since(start);
      start = Clock::now();
    }
    const Result<Generation::Event> accepted = generation.accept(logits.tokens[0]);
    if (!accepted.ok()) {
      steps.clear();
      const auto tokens = std::ssize(parts.front().tokens);
      if (!sequence.holds(sequence.length() - tokens)) return accepted.error();
      const Part again = generation.again(tokens);
      return model.locate_not_finite(backend, {{&again, 1}}, accepted.error());
    }
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
