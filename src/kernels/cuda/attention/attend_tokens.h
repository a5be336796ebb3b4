#pragma once
// Single tokens: norms and positions of their heads, the cache, and attention, as one kernel. It is
// the attention of a step's kernel (step/attention.cuh) by itself, for steps that are launches.

#include "kernels/cuda/step/program.h"

namespace subbyte::cuda {

/// Attends with the tokens, places, pages, splits, partials and shared memory of `program`, which
/// are those of a step's kernel, of numbers in `attention.qkv` to its y. Errors are left to
/// cudaGetLastError().
SUBBYTE_BY_NVCC void run_attend_tokens(const StepProgram& program, const StepAttention& attention,
                                       Element element, int multiprocessors, Stream stream);

}  // namespace subbyte::cuda
