#pragma once
// How large what a step reads is, before weights are loaded, too.

#include "ops/step_plan.h"

namespace subbyte {

/// Bytes of all matrices that an operation reads, or a plan: as handles have them, one that two
/// operations read twice.
int64_t weight_bytes(const Op& op);
int64_t weight_bytes(const StepPlan& plan);

/// Bytes of one page or state of each group.
double kept_bytes(const CacheLayout& layout);

}  // namespace subbyte
