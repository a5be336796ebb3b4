#pragma once
// What launches of experts have in common.

#include "kernels/cuda/experts/experts.h"

namespace subbyte::cuda {

ExpertArguments expert_arguments(const ExpertsCall& call);

/// As run_experts(); `arguments` are those of the kernel.
Status launch_experts(const void* kernel, const Plan& plan, void** arguments, Stream stream);

}  // namespace subbyte::cuda
