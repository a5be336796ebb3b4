#pragma once
// Tokens of a model with experts that may go to others on the GPU than on the CPU.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <set>
#include <span>
#include <vector>

#include "model_on_gpu.h"
#include "models/tensor_spec.h"
#include "support/test_context.h"

namespace subbyte::testing {

/// Keeps the router's logits of every mixture of experts.
class RouterWatch : public StepObserver {
 public:
  explicit RouterWatch(const StepPlan& plan) {
    for (const Op& op : plan.ops) {
      if (const auto* experts = std::get_if<ExpertsOp>(&op.what)) {
        watched_.insert(experts->router_logits);
      }
    }
  }

  void observe(const Op&, ValueId result, std::span<const float> numbers) override {
    if (watched_.contains(result)) logits_.insert(logits_.end(), numbers.begin(), numbers.end());
  }
  /// [layers][tokens][experts]
  const std::vector<float>& seen() const { return logits_; }

 private:
  std::set<ValueId> watched_;
  std::vector<float> logits_;
};

/// Tokens for which, in some layer, the last expert that is chosen and the first that is not are
/// nearer than the error that is stated: another one may be chosen on the GPU, and that is no
/// rounding any more.
inline std::vector<bool> near_ties(const LoadedModel& cpu, std::span<const int32_t> ids,
                                   double stated, Element cache = Element::kF32) {
  const ModelConfig& config = cpu.model->config();
  std::vector<bool> tied(ids.size());
  const auto stack = expert_stack_of(config);
  if (!stack) return tied;
  RouterWatch watch(cpu.model->plan());
  TestContext(*cpu.model, *cpu.backend, std::ssize(ids), cache).forward(ids, &watch);
  const double allowed = stated_difference(watch.seen(), stated);
  for (int64_t row = 0; row < std::ssize(watch.seen()) / stack->experts; ++row) {
    const auto all = std::span(watch.seen()).subspan(row * stack->experts);
    std::vector<float> sorted(all.begin(), all.begin() + stack->experts);
    std::ranges::sort(sorted, std::greater());
    const double gap = double{sorted[stack->use.per_token - 1]} - sorted[stack->use.per_token];
    if (gap <= allowed) tied[row % ids.size()] = true;
  }
  return tied;
}

/// Those before the first whose experts were near and whose logits say that they are others; what
/// comes after it sees its keys and values.
inline int64_t tokens_before_other_experts(std::span<const float> found,
                                           std::span<const float> expected,
                                           const std::vector<bool>& tied, double stated) {
  const std::size_t vocab = found.size() / tied.size();
  for (std::size_t t = 0; t < tied.size(); ++t) {
    const double of_token =
        decibels(found.subspan(t * vocab, vocab), expected.subspan(t * vocab, vocab));
    if (tied[t] && !(of_token > stated)) return static_cast<int64_t>(t);
  }
  return std::ssize(tied);
}

/// Returns whether all tokens were compared.
inline bool expect_decibels(std::span<const float> found, std::span<const float> expected,
                            const std::vector<bool>& tied, double stated) {
  const int64_t count = tokens_before_other_experts(found, expected, tied, stated);
  const std::size_t size = found.size() / tied.size() * count;
  if (count < std::ssize(tied))
    std::printf("token %d has other experts\n", static_cast<int>(count));
  if (count > 0) {
    EXPECT_GT(decibels(found.first(size), expected.first(size)), stated);
  }
  return count == std::ssize(tied);
}

}  // namespace subbyte::testing
