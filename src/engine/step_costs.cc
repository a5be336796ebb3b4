#include "engine/step_costs.h"

#include <algorithm>

namespace subbyte {
namespace {

/// Steps after which the time without prompts is measured anew.
constexpr int64_t kStepsBetween = 64;
/// Of what was measured before, with each step.
constexpr double kRemembered = 0.875;
/// More than any step has.
constexpr double kManyTokens = 1e9;

}  // namespace

double StepCosts::alone_seconds() const {
  return *std::ranges::min_element(answer_seconds_);
}

void StepCosts::add(const StepLoad& load, double seconds) {
  const bool has_alone = num_measured_ >= std::ssize(answer_seconds_);
  if (load.prompt_tokens == 0) {
    answer_seconds_[num_measured_++ % answer_seconds_.size()] = seconds;
    num_since_ = 0;
  } else if (load.num_answers == 0 || has_alone) {
    const double alone = load.num_answers == 0 ? 0 : alone_seconds();
    prompt_seconds_ = kRemembered * prompt_seconds_ + std::max(seconds - alone, 0.0);
    prompt_tokens_ = kRemembered * prompt_tokens_ + static_cast<double>(load.prompt_tokens);
  }
}

int64_t StepCosts::most_prompt_tokens(int64_t num_answers, int64_t num_prompts,
                                      double max_slowdown) {
  if (num_measured_ < std::ssize(answer_seconds_) || num_since_ >= kStepsBetween) {
    num_since_ = 0;
    return 0;
  }
  ++num_since_;
  if (prompt_seconds_ <= 0) return kLeastPromptTokens;
  const auto answers = static_cast<double>(num_answers);
  const double waiting = (answers + static_cast<double>(num_prompts)) / answers;
  const double seconds = (max_slowdown - 1) * waiting * alone_seconds();
  const double tokens = std::min(seconds * prompt_tokens_ / prompt_seconds_, kManyTokens);
  return std::max(kLeastPromptTokens, static_cast<int64_t>(tokens));
}

}  // namespace subbyte
