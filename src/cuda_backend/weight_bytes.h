#pragma once
// Bytes that weights take on a GPU, which need not be there.

#include "ops/machine_memory.h"

namespace subbyte {

/// Matrices in the form of the kernels, each with what its alignment costs. Code linear.unsupported
/// for what has no kernels.
Result<int64_t> cuda_matrix_bytes(const MatrixShape& shape);

/// Refuses experts, whose format has no kernel.
Error unsupported_experts(const WeightFormat& format);

}  // namespace subbyte
