#pragma once
// What follows a product that has not done it: bias, activations with and without a gate, residual.

#include "base/status.h"
#include "kernels/cuda/common/arguments.h"
#include "kernels/cuda/common/elements.h"

namespace subbyte::cuda {

/// y = activation(gain * sums + bias) + residual, computed in float32 and rounded once. NaN stays.
struct EpilogueCall {
  const void* sums = nullptr;  // [m][sums_stride], may be y where there is no gate
  Element sums_element = Element::kF32;
  void* y = nullptr;                // [m][y_stride] of `cols`
  const void* bias = nullptr;       // of the columns of sums, or nullptr
  const void* residual = nullptr;   // [m][residual_stride], or nullptr; may be y
  Element element = Element::kF16;  // of y, bias and residual
  int64_t m = 0;
  int64_t cols = 0;  // of y; sums have twice as many with a gate
  int64_t sums_stride = 0;
  int64_t y_stride = 0;
  int64_t residual_stride = 0;
  float gain = 1;
  Unary unary = Unary::kNone;
  Activation gate = Activation::kNone;
  SwiGLU swiglu = {};
  bool gate_up_pairs = false;  // gate and up alternate, else all of gate come first
};

/// One launch, which allocates nothing. Code cuda.launch.
SUBBYTE_BY_NVCC Status run_epilogue(const EpilogueCall& call, Stream stream);

}  // namespace subbyte::cuda
