#include "engine/generation.h"

#include <algorithm>

namespace subbyte {

Generation::Generation(Sequence& sequence, std::span<const int32_t> prompt,
                       const GenerateOptions& options)
    : sequence_(sequence),
      options_(options),
      sampler_(options.sampling),
      first_position_(sequence.length()),
      prompt_tokens_(std::ssize(prompt)),
      tokens_(prompt.begin(), prompt.end()) {}

Part Generation::next(int64_t max_tokens) {
  const int64_t done = sequence_.length() - first_position_;
  const int64_t left = std::ssize(tokens_) - done;
  const int64_t count = std::min(left, max_tokens);
  return {&sequence_, std::span(tokens_).subspan(done, count), count == left ? 1 : 0};
}

Result<Generation::Event> Generation::accept(std::span<const float> logits) {
  SUBBYTE_TRY(const int32_t token, sampler_.sample(logits, tokens_));
  ++generated_tokens_;
  if (std::ranges::find(options_.stop_tokens, token) != options_.stop_tokens.end()) {
    return Event{std::nullopt, StopReason::kStopToken};
  }
  tokens_.push_back(token);
  if (options_.max_tokens >= 0 && generated_tokens_ >= options_.max_tokens) {
    return Event{token, StopReason::kLength};
  }
  if (sequence_.length() == sequence_.max_length()) {
    return Event{token, StopReason::kContextFull};
  }
  return Event{token, std::nullopt};
}

}  // namespace subbyte
