#pragma once
// Sees what the operations of a step give: to find where a step went wrong, for tests and tools.

#include <span>

#include "ops/step_plan.h"

namespace subbyte {

class StepObserver {
 public:
  virtual ~StepObserver() = default;
  /// A result of `op`, after the operations before it were seen: [rows][cols] as floats. A step
  /// that is observed is slow.
  virtual void observe(const Op& op, ValueId result, std::span<const float> numbers) = 0;
};

}  // namespace subbyte
