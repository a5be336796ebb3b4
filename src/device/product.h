#pragma once
// y = activation(x W^T + bias) + residual, as every interface asks for it.

#include <cstdint>

#include "base/operands.h"
#include "formats/format.h"

namespace subbyte::device {

/// An activation of the sums of a product. A gate makes one column of two: rows of the weights are
/// gate and up, as their row order says.
enum class Activation : uint8_t { kNone, kRelu, kGelu, kSiluGate, kGeluGate, kClampedGate };

constexpr bool is_gate(Activation activation) {
  return activation >= Activation::kSiluGate;
}

/// Operands lie where the matrix does. Strides are in numbers, all of them filled in.
struct Product {
  Format number = Format::kF16;  // of x, y, bias and residual
  /// The bias may have another type on the CPU, and f32 beside dense weights on a GPU; kNone:
  /// `number`.
  Format bias_number = Format::kNone;
  /// Sums of dense weights on a GPU may be left in f32, without what follows them; kNone: `number`.
  Format y_number = Format::kNone;
  int64_t m = 0;  // rows of x of a batch
  int64_t batch = 1;
  const void* x = nullptr;
  void* y = nullptr;
  const void* bias = nullptr;      // [rows], or nullptr
  const void* residual = nullptr;  // as y, or nullptr; may be y
  int64_t x_stride = 0;
  int64_t y_stride = 0;
  int64_t residual_stride = 0;
  int64_t x_batch_stride = 0;
  int64_t y_batch_stride = 0;
  int64_t residual_batch_stride = 0;
  Activation activation = Activation::kNone;
  SwiGLU clamp = kUsualClamp;  // of kClampedGate
  /// The gate and up of weights in natural row order alternate, else all of gate come first. Other
  /// orders say it themselves.
  bool gate_in_turns = false;
  /// On a GPU: a row's results are the same bits whatever m is. On the CPU its Execution says so.
  bool batch_invariant = false;
  /// On a GPU: inputs of many rows become E4M3 beside weights in FP8 (kernels/cuda/w8a8.h).
  bool fp8_inputs = false;
  /// On a GPU: the launch before may not have ended yet, and writes no weights
  /// (cuda::LinearCall::dependent_launch).
  bool dependent_launch = false;

  /// The batches follow each other, so they are one.
  bool is_joined() const {
    return batch == 1 || (x_batch_stride == m * x_stride && y_batch_stride == m * y_stride &&
                          (residual == nullptr || residual_batch_stride == m * residual_stride));
  }
};

}  // namespace subbyte::device
