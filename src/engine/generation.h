#pragma once
// The state of one request: what goes into the next step, and what comes of it. The caller that
// steps (generate(), a scheduler of many requests) puts the parts of several generations into one
// batch:
//
//   next(chunk) -> Part -> Model::forward -> accept(token) -> Event
//
// Parts that only go on with a prompt have no choice, and accept() is not called for them. No part
// asks for logits; a caller that wants to see them sets Part::num_logits. A part may be asked for
// while the step before it is on its way, one step ahead (engine/step_queue.h).

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/sampler.h"
#include "ops/batch.h"
#include "subbyte/answer.h"

namespace subbyte {

struct GenerateOptions {
  SamplingOptions sampling;
  int64_t max_tokens = -1;             // -1: until the context is full
  std::vector<int32_t> stop_tokens{};  // end the generation and are not handed out
  int64_t min_tokens = 0;              // before these no stop token is chosen
};

class Generation {
 public:
  /// Appends `prompt` (at least one token) and what follows to `sequence`, which must outlive this.
  /// Every token that was handed out is in the sequence afterwards, except the last one unless a
  /// stop token came after it.
  Generation(Sequence& sequence, std::span<const int32_t> prompt, const GenerateOptions& options);

  /// Says whether it has ended, which it has from the start where no tokens are wanted. Then next()
  /// and accept() must not be called any more.
  bool ended() const { return ended_; }

  /// Begins the sequence anew where the text has other angles than it was computed with, as it has
  /// become longer than they are for, or is not as long (CacheLayout::long_after). No step of it is
  /// on its way.
  void choose_angles();
  /// Part that the next step is to compute: at most `max_tokens` (at least 1) more tokens of the
  /// prompt, or the last token. The tokens stay where they are until accept().
  Part next(int64_t max_tokens);
  /// Says whether the step after one with a choice, which is not accepted yet, can be told: where
  /// that choice is not the last, and its token decides nothing but itself.
  bool can_go_ahead() const;
  /// That step, for the token that choice `before` of the step before takes. What stands for it
  /// stays until the next call.
  Part next_ahead(int64_t before);
  /// The last part of `tokens` tokens once more; nothing comes after it in the sequence.
  Part again(int64_t tokens);
  /// Tokens that are not in the sequence yet: of the prompt, and the last one; 0 while a choice is
  /// on its way. Those that the caller has put into the sequence, or cut from it, count.
  int64_t tokens_left() const {
    return std::ssize(tokens_) - (sequence_.length() - first_position_);
  }

  /// Outcome of a step: a token to hand out, the end, or both.
  struct Event {
    std::optional<int32_t> token;
    std::optional<StopReason> stop;
  };
  /// `token`: what the backend chose for the part. Code sampling.not_finite for kNoToken; an error
  /// ends this generation, and the others of the step go on.
  Result<Event> accept(int32_t token);
  /// The same for a caller that takes away `choice` and wants `num_logits` of the last token, to
  /// change them: `logits` [vocabulary]. Codes: those of Sampler::sample.
  Result<Event> accept(std::span<const float> logits);

  /// The prompt and what was handed out.
  std::span<const int32_t> tokens() const { return tokens_; }
  int64_t prompt_tokens() const { return prompt_tokens_; }
  /// Those handed out and the stop token.
  int64_t generated_tokens() const { return generated_tokens_; }

 private:
  Sequence& sequence_;
  GenerateOptions options_;
  Sampler sampler_;
  int64_t first_position_;  // of the prompt
  int64_t prompt_tokens_;
  int64_t generated_tokens_ = 0;
  bool ended_;
  std::vector<int32_t> tokens_;  // the prompt and what was handed out
  int32_t token_ahead_ = 0;      // pending_token()

  /// Says whether there is room for the token that would be handed out as the `n`-th after these;
  /// 0: for the last one.
  bool has_room_for(int64_t n) const {
    return first_position_ + std::ssize(tokens_) + n <= sequence_.max_length();
  }
  Event append(int32_t token);
  Event end(std::optional<int32_t> token, StopReason reason) {
    ended_ = true;
    return {token, reason};
  }
};

}  // namespace subbyte
