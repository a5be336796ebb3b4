#pragma once
// y = x W^T + bias on tensors, with any batch dimensions.

#include <optional>

#include "base/status.h"
#include "device/host_numbers.h"
#include "torch_operators/ready.h"
#include "torch_operators/tensor.h"

namespace subbyte::torch_operators {

using device::load_floats;
using device::load_numbers;
using device::store_floats;

struct Epilogue;

/// Multiplies; the arguments have been checked, and `out` is contiguous, of x's type. Sums are in
/// f32 and rounded once, to nearest even; the bias is theirs whatever `epilogue` has. Allocates
/// nothing after the first call of a size. Codes: linear.unsupported.
Status multiply(Machine& machine, const Tensor& x, const device::HostWeights& weights,
                const std::optional<Tensor>& bias, Tensor& out, const Epilogue* epilogue = nullptr);

/// x W^T + bias with a matrix that `make` makes of Tensor::host() of `sources`; keep() keeps it, on
/// a CPU and on a GPU. Codes: linear.unsupported; torch.argument for what a GPU has not.
Status multiply_kept(const Tensor& x, const Recipe& recipe, std::span<const Tensor* const> sources,
                     FunctionRef<Result<Matrix>()> make, const std::optional<Tensor>& bias,
                     Tensor& out);

}  // namespace subbyte::torch_operators
