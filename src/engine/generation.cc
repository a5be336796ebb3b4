#include "engine/generation.h"

#include <algorithm>

namespace subbyte {

Generation::Generation(Sequence& sequence, std::span<const int32_t> prompt,
                       const GenerateOptions& options)
    : sequence_(sequence),
      options_(options),
      sampler_(options.sampling, options.min_tokens, options.stop_tokens),
      first_position_(sequence.length()),
      prompt_tokens_(std::ssize(prompt)),
      ended_(options.max_tokens == 0),
      tokens_(prompt.begin(), prompt.end()) {}

void Generation::choose_angles() {
  const int64_t after = sequence_.pool().layout().long_after;
  if (after == 0 || first_position_ > 0) return;  // what stands before is nobody's here
  const bool is_long = std::ssize(tokens_) > after;
  if (is_long != sequence_.is_long()) sequence_.begin(std::ssize(tokens_));
}

Part Generation::next(int64_t max_tokens) {
  const int64_t left = tokens_left();
  const int64_t done = std::ssize(tokens_) - left;
  const int64_t count = std::min(left, std::max<int64_t>(max_tokens, 1));
  Part part = {&sequence_, std::span(tokens_).subspan(done, count), 0};
  if (count == left) part.choice = sampler_.choice(tokens_, generated_tokens_);
  return part;
}

bool Generation::can_go_ahead() const {
  const bool is_last = options_.max_tokens >= 0 && generated_tokens_ + 1 >= options_.max_tokens;
  const int64_t after = sequence_.pool().layout().long_after;
  const bool is_as_long = !sequence_.is_long() && std::ssize(tokens_) == after;
  return tokens_left() == 0 && !is_last && has_room_for(1) && !sampler_.has_penalty() &&
         !is_as_long;
}

Part Generation::next_ahead(int64_t before) {
  token_ahead_ = pending_token(before);
  return {&sequence_, {&token_ahead_, 1}, 0, sampler_.choice_after(generated_tokens_)};
}

Part Generation::again(int64_t tokens) {
  sequence_.truncate(sequence_.length() - tokens);
  return next(tokens);
}

Result<Generation::Event> Generation::accept(int32_t token) {
  ended_ = token == kNoToken;
  if (ended_) {
    return Error{"sampling.not_finite",
                 "expected finite logits, found one that is NaN or infinity, or all -infinity, "
                 "perhaps by their biases"};
  }
  sampler_.advance();
  return append(token);
}

Result<Generation::Event> Generation::accept(std::span<const float> logits) {
  const Result<int32_t> sampled = sampler_.sample(logits, tokens_, generated_tokens_);
  ended_ = !sampled.ok();
  if (ended_) return sampled.error();
  return append(*sampled);
}

Generation::Event Generation::append(int32_t token) {
  ++generated_tokens_;
  if (std::ranges::find(options_.stop_tokens, token) != options_.stop_tokens.end()) {
    return end(std::nullopt, StopReason::kStopToken);
  }
  tokens_.push_back(token);
  if (options_.max_tokens >= 0 && generated_tokens_ >= options_.max_tokens) {
    return end(token, StopReason::kLength);
  }
  if (!has_room_for(0)) return end(token, StopReason::kContextFull);
  return Event{token, std::nullopt};
}

}  // namespace subbyte
