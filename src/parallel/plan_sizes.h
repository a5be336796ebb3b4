#pragma once
// How large what a step reads is, before weights are loaded, too.

#include "ops/step_plan.h"

namespace subbyte {

/// The numbers of all matrices that an operation reads, or a plan.
double weight_numbers(const Op& op);
double weight_numbers(const StepPlan& plan);

/// Bytes of one page or state of each group.
double kept_bytes(const CacheLayout& layout);

}  // namespace subbyte
