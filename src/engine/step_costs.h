#pragma once
// How many tokens of prompts a step may have beside samples that answer, so that those do not stand
// still while prompts are read. What steps take is measured as they go:
//
//   seconds of a step = seconds of its answers alone + tokens of prompts * seconds of one
//
// The first is the least of the last few steps without prompts, since a step that is the first of
// its kind may take long; where none has come for a while, one step has answers alone. The second
// is a mean of the last steps, which at a given size contains what grows in no proportion.

#include <array>
#include <cstdint>

namespace subbyte {

/// Work of a step.
struct StepLoad {
  int64_t num_answers = 0;  // samples that go on by a token
  int64_t prompt_tokens = 0;
};

class StepCosts {
 public:
  /// A step has taken that long.
  void add(const StepLoad& load, double seconds);

  /// Tokens of `num_prompts` prompts in a step with so many answers. It takes at most
  /// `max_slowdown` times as long as without them where few prompts come; where many do,
  ///
  ///   1 + (max_slowdown - 1) * (answers + prompts) / answers
  ///
  /// times, as those that wait for a first token would otherwise wait for few. At least
  /// kLeastPromptTokens, but 0 for a step that is to be measured without prompts.
  int64_t most_prompt_tokens(int64_t num_answers, int64_t num_prompts, double max_slowdown);

  /// So that prompts go on whatever was measured.
  static constexpr int64_t kLeastPromptTokens = 16;

 private:
  std::array<double, 3> answer_seconds_{};  // of the last steps without prompts, in a ring
  int64_t num_measured_ = 0;                // of these steps, ever
  int64_t num_since_ = 0;                   // steps with prompts that were planned since
  double prompt_seconds_ = 0;               // of the last steps, the older the less
  double prompt_tokens_ = 0;

  double alone_seconds() const;
};

}  // namespace subbyte
