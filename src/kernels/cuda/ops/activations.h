#pragma once
// Activations without a gate, after a product: no kernel of a product has them as its epilogue.

#include "base/status.h"
#include "kernels/cuda/ops/elements.h"

namespace subbyte::cuda {

struct ActivationCall {
  void* y = nullptr;               // [m][y_stride]
  const void* residual = nullptr;  // [m][residual_stride], added afterwards, or nullptr; may be y
  int64_t m = 0;
  int64_t cols = 0;
  int64_t y_stride = 0;
  int64_t residual_stride = 0;
  bool is_gelu = false;  // x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))); else max(x, 0)
  gpu::Number number = gpu::Number::kF16;  // of y and residual
};

/// y = activation(y) + residual, computed in float32 and rounded once. NaN stays. One launch, which
/// allocates nothing. Code cuda.launch.
Status run_activation(const ActivationCall& call, Stream stream);

}  // namespace subbyte::cuda
