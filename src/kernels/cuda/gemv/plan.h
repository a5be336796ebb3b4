#pragma once
// The plan of gemv/kernel.cuh.

#include <optional>

#include "kernels/cuda/plan.h"

namespace subbyte::cuda {

/// None if it does not fit into the shared memory of a block, or into 2^31 blocks.
std::optional<Plan> gemv_plan(const Problem& problem, const Device& device);

}  // namespace subbyte::cuda
