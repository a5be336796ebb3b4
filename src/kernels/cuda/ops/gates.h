#pragma once
// What follows a product and is no epilogue of it.

#include "kernels/cuda/ops/elements.h"

namespace subbyte::cuda {

/// y[m][cols] = silu(gate) * up of gate_up [m][cols of gate, then cols of up], rounded once.
void run_swiglu(void* y, const void* gate_up, Element element, int64_t m, int64_t cols,
                Stream stream);

/// `size` numbers as floats.
void run_to_floats(float* y, const void* x, Element element, int64_t size, Stream stream);

}  // namespace subbyte::cuda
