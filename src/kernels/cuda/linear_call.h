#pragma once
// What launches of products have in common.

#include "kernels/cuda/common/arguments.h"
#include "kernels/cuda/linear.h"

namespace subbyte::cuda {

/// Refuses what would make the GPU read or write where nothing is. Code cuda.shape.
Status check_call(const Plan& plan, const LinearCall& call, const void* workspace);

LinearArguments linear_arguments(const LinearCall& call);

}  // namespace subbyte::cuda
