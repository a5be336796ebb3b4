#pragma once
// Products with tensors of a GPU: weights are packed there at the first call with them, and kept.

#include <optional>

#include "torch_operators/epilogue.h"
#include "torch_operators/kept.h"
#include "torch_operators/weights.h"

namespace subbyte::torch_operators {

/// y = activation(x W^T + bias) + residual; the arguments have been checked. Launches on torch's
/// current stream, and waits for nothing but while weights are packed. Codes: torch.argument for a
/// bias of another type than x, argument, cuda.*.
Status linear_on_gpu(const Tensor& x, const WeightTensors& weights, const MatrixView& view,
                     const Epilogue& epilogue, Tensor& out);

/// x W^T + bias of rows [first, first + count) with a matrix that `make` makes on the host of
/// copies of `sources`.
Status multiply_on_gpu(const Tensor& x, int64_t first, int64_t count, const Recipe& recipe,
                       std::span<const Tensor* const> sources, FunctionRef<Result<Matrix>()> make,
                       const std::optional<Tensor>& bias, Tensor& out);

/// Weights to numbers of the type of `out`. Codes: argument, cuda.*.
Status dequantize_on_gpu(const WeightTensors& weights, const MatrixView& view, Tensor& out);

}  // namespace subbyte::torch_operators
