#pragma once
// Which operations of a plan others take in, so that a step of few tokens has fewer launches.

#include <vector>

#include "cuda_backend/schedule.h"

namespace subbyte {

/// Sets what each of `launches`, one for each operation of `plan`, takes in and leaves, and returns
/// which operations are not launched by themselves. `tokens`: of the step; 0: any number.
std::vector<bool> join_operations(const StepPlan& plan, int64_t tokens,
                                  std::vector<ScheduledLaunch>& launches);

}  // namespace subbyte
