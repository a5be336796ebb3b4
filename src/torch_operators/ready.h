#pragma once
// Weights as products on the CPU read them, with copies that are kept by the tensors of a caller.

#include <memory>
#include <span>

#include "base/status.h"
#include "device/host_weights.h"
#include "torch_operators/kept.h"
#include "torch_operators/machine.h"

namespace subbyte::torch_operators {

/// Makes `view` ready; what is copied for that is kept. `of` is how the bytes and the format of the
/// view are made of `sources`: nothing where they are theirs. Its tensor_scale may be another one
/// in each call. Codes: linear.unsupported.
Result<device::HostWeights> make_ready(Machine& machine, const MatrixView& view,
                                       std::span<const Tensor* const> sources,
                                       const Recipe& of = {});

/// Keeps weights and what `make` makes of them for products in one place, so that a call looks it
/// up once: `matrix` with its `offsets`, if any, which belong to groups of `group_size`.
struct WithOffsets {
  Matrix matrix;
  Matrix offsets;
  int64_t group_size = 0;
};
Result<std::shared_ptr<const device::HostWeights>> keep_ready(
    Machine& machine, const Recipe& recipe, std::span<const Tensor* const> sources,
    FunctionRef<Result<WithOffsets>()> make);

}  // namespace subbyte::torch_operators
