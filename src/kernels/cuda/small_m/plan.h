#pragma once
// The plans of small_m8, small_m16 and small_m64.

#include <optional>
#include <string>
#include <vector>

#include "kernels/cuda/planning.h"

namespace subbyte::cuda {

constexpr bool is_small_m(KernelKind kind) {
  return kind >= KernelKind::kSmallM8 && kind <= KernelKind::kSmallM64;
}

/// Appends the plans of kernel `kind` that fit into the shared memory of a CTA and 2^31 CTAs.
void add_small_m_plans(std::vector<Plan>& plans, const Planning& planning, KernelKind kind);

/// The plan of a kernel for up to its number of tokens, without split-K, with `ctas` CTAs, or where
/// the partials of their strips do not fit, more. None if nothing fits.
std::optional<Plan> plan_small_m_ctas(const Planning& planning, KernelKind kind, int64_t ctas);

/// Appends the one plan of batch-invariant mode, if there is one: the order of additions in it does
/// not depend on the number of tokens.
void add_batch_invariant_plans(std::vector<Plan>& plans, const Planning& planning);

/// "66 clusters of 2, 4 pairs in flight, chunks of 4096 inputs".
std::string describe_small_m(const Plan& plan);

}  // namespace subbyte::cuda
