#pragma once
// How a step is cut among the members of a group: by ranks, each of which has a part of every
// weight, or by stages, each of which has some of the layers.

#include "ops/step_plan.h"
#include "parallel/group_weights.h"

namespace subbyte {

class GroupCut {
 public:
  virtual ~GroupCut() = default;

  /// Decides what each member has of a plan, whose weights need not be there, before the others are
  /// called with it. Codes: device.stages.
  virtual Status cut(const StepPlan& plan) = 0;
  /// Gives members with memory of their own less from the next cut() on; false where it cannot be.
  virtual bool shrinks() { return false; }
  /// Gives member `i` of those in this process its weights.
  virtual RankCutter cutter(Backend* backend, std::size_t i) const = 0;
  /// The plan of that member. Code plan.shape.
  virtual Result<StepPlan> plan_of(const StepPlan& plan, std::size_t i,
                                   WeightCutter& cutter) const = 0;
};

}  // namespace subbyte
