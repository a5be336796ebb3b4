#pragma once
// What a GPU does for operators that have kernels there: functions that the library gets from a
// file of its own, python/torch/cuda_functions.cc, in builds with CUDA.

#include <optional>

#include "base/status.h"
#include "kernels/quantized_blocks.h"
#include "torch_operators/epilogue.h"
#include "torch_operators/kept.h"
#include "torch_operators/weights.h"

namespace subbyte::torch_operators {

/// All tensors are on one GPU but for those of WeightTensors that may be on the CPU. Work is
/// launched on torch's current stream of that GPU and not waited for.
struct DeviceFunctions {
  Status (*quantize)(const BlockQuantization& blocks, const Tensor& x, Tensor& codes,
                     Tensor& scales);
  Status (*dequantize)(const WeightTensors& weights, const MatrixView& view, Tensor& out);
  Status (*linear)(const Tensor& x, const WeightTensors& weights, const MatrixView& view,
                   const Epilogue& epilogue, Tensor& out);
  /// x W^T + bias with a matrix that `make` makes on the host of copies of `sources`, kept as
  /// keep() does. Codes torch.argument for x in f32 and a bias of another type than x.
  Status (*multiply)(const Tensor& x, const Recipe& recipe, std::span<const Tensor* const> sources,
                     FunctionRef<Result<Matrix>()> make, const std::optional<Tensor>& bias,
                     Tensor& out);
};

/// Tells which functions a GPU has; before register_operators().
void set_cuda_functions(const DeviceFunctions& functions);

/// nullptr where there are none.
const DeviceFunctions* cuda_functions();

}  // namespace subbyte::torch_operators
