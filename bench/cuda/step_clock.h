#pragma once
// The kernel of a step with a clock in it, for INT4 weights in long groups and f16 activations.

#include <cstdint>

#include "kernels/cuda/step/program.h"

namespace subbyte::bench {

/// Brings the kernel to the GPU before it is launched, as ranks must that wait for each other.
void load_step_with_clock();

/// Cycles of the multiprocessor's clock: [CTA][warp][operation][phase] (step/clock.cuh), of one
/// launch. `times` has room for all and is set to zero before.
void run_step_with_clock(const cuda::StepProgram& program, int multiprocessors, uint64_t* times,
                         void* stream);

}  // namespace subbyte::bench
