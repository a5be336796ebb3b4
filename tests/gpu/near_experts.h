#pragma once
// Tokens of a model with experts that may go to others on the GPU than on the CPU.

#include <algorithm>
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

}  // namespace subbyte::testing
