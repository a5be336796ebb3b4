#pragma once
// The plans of large_m16 to large_m256.

#include <optional>
#include <string>
#include <vector>

#include "kernels/cuda/planning.h"

namespace subbyte::cuda {

/// Appends the plans of kernel `kind` that fit, if the device has wgmma. `in_blocks`: of products
/// in E4M3 (w8a8.h), for large_m128.
void add_large_m_plans(std::vector<Plan>& plans, const Planning& planning, KernelKind kind,
                       bool in_blocks = false);

/// The plan of kernel `kind` for `token_tiles` tiles of tokens, without split-K. None if the device
/// has no wgmma or nothing fits.
std::optional<Plan> plan_large_m_tiles(const Planning& planning, KernelKind kind,
                                       int64_t token_tiles);

/// "48 x 1 tiles, multicast to 1, split-K 2 after 1 full waves".
std::string describe_large_m(const Plan& plan);

}  // namespace subbyte::cuda
