#pragma once
// Runs a program (program.h) that layout.h has a place for.

#include "kernels/cuda/linear.h"
#include "kernels/cuda/step/program.h"

namespace subbyte::cuda {

/// Brings the kernel for products of `format` to the GPU, which the first launch does otherwise.
/// `is_full`: see StepProgram. Codes: cuda.launch, cuda.kernel.
Status load_step(const PackedFormat& format, Number number, bool is_full);

/// One launch on all multiprocessors of the device, of which nothing else may hold one for good.
/// `format`: of its products. Codes: cuda.launch, cuda.kernel.
Status run_step(const StepProgram& program, const PackedFormat& format, Number number,
                const Device& device, Stream stream);

}  // namespace subbyte::cuda
