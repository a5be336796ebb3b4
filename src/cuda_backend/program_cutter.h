#pragma once
// How a plan becomes programs of the kernel of a step.

#include "cuda_backend/schedule.h"

namespace subbyte {

/// Cuts a plan into programs, as long as they may be, and launches between them, for a device that
/// has the kernel. Where experts or a delta net are launched, what comes before them may be left in
/// a program: such a schedule is not to be run. Arguments are those of schedule_programs().
Schedule cut_into_programs(const StepPlan& plan, const ValueSlots& slots, int64_t tokens,
                           bool attends, const cuda::Device& device, const ProgramLimits& limits);

}  // namespace subbyte
