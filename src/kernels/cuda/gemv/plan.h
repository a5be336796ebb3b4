#pragma once
// The plan of gemv.

#include <string>
#include <vector>

#include "kernels/cuda/planning.h"

namespace subbyte::cuda {

/// Appends the one plan of gemv, unless it does not fit into the shared memory of a CTA or into
/// 2^31 CTAs.
void add_gemv_plans(std::vector<Plan>& plans, const Planning& planning);

/// "132 CTAs, 3 strips at a time".
std::string describe_gemv(const Plan& plan);

}  // namespace subbyte::cuda
