#include "kernels/cuda/plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>

#include "kernels/cuda/cost_model.h"
#include "kernels/cuda/gemv/plan.h"
#include "kernels/cuda/large_m/plan.h"
#include "kernels/cuda/small_m/plan.h"

namespace subbyte::cuda {
namespace {

struct KernelName {
  std::string_view name;
  int tokens;  // of a CTA
};

/// By KernelKind, those of single matrices first.
constexpr std::array<KernelName, kKernelKinds + 1> kKernels = {{{"gemv", 8},
                                                                {"small_m8", 8},
                                                                {"small_m16", 16},
                                                                {"small_m64", 64},
                                                                {"large_m16", 16},
                                                                {"large_m32", 32},
                                                                {"large_m64", 64},
                                                                {"large_m128", 128},
                                                                {"large_m256", 256},
                                                                {"panel16", 16}}};

std::string shape_of(const Problem& problem) {
  const PackedFormat& f = problem.weights;
  return std::to_string(f.cols) + "x" + std::to_string(f.rows) + " " + to_string(f.source) +
         " m=" + std::to_string(problem.m);
}

/// Why plan_candidates() has none.
Error no_plan(const Problem& problem, const Device& device, const PlanOptions& options) {
  const std::string quoted = "linear: " + quote_name(options.kernel);
  const auto kernels = std::span(kKernels).first(kKernelKinds);
  const auto found = std::ranges::find(kernels, options.kernel, &KernelName::name);
  if (!options.kernel.empty() && found == kernels.end()) {
    std::string names;
    for (const KernelName& known : kernels) names.append(1, ' ').append(known.name);
    return {"cuda.kernel",
            "linear: no kernel " + quote_name(options.kernel) + "; there are" + names};
  }
  const bool needs_wgmma =
      !options.kernel.empty() && is_large_m(static_cast<KernelKind>(found - kernels.begin()));
  if (needs_wgmma && device.compute_capability != 90) {
    return {"cuda.kernel", quoted + " needs compute capability 9.0, found " +
                               std::to_string(device.compute_capability / 10) + "." +
                               std::to_string(device.compute_capability % 10)};
  }
  if (options.batch_invariant && !options.kernel.empty()) {
    return {"cuda.kernel", quoted + " is not batch-invariant for " + shape_of(problem) +
                               "; leave the choice to the plan"};
  }
  return {"cuda.kernel", "linear: " + shape_of(problem) + ": no kernel" +
                             (options.kernel.empty() ? "" : quoted.substr(7)) + " fits into " +
                             std::to_string(device.shared_bytes / 1024) +
                             " KiB of shared memory and 2^31 CTAs"};
}

/// Tokens up to which large_m16 to large_m64 were not measured: gemv and small_m8 are for them.
constexpr int64_t kMostOfGemv = 8;

void add_plans(std::vector<Plan>& plans, const Planning& planning, KernelKind kind) {
  if (kind == KernelKind::kGemv) {
    add_gemv_plans(plans, planning);
  } else if (is_small_m(kind)) {
    add_small_m_plans(plans, planning, kind);
  } else {
    add_large_m_plans(plans, planning, kind);
  }
}

}  // namespace

std::string_view name(KernelKind kind) {
  return kKernels[static_cast<std::size_t>(kind)].name;
}

int tokens_of(KernelKind kind) {
  return kKernels[static_cast<std::size_t>(kind)].tokens;
}

std::vector<Plan> plan_candidates(const Problem& problem, const Device& device,
                                  const PlanOptions& options) {
  const CostModel cost = cost_model(device);
  const Planning planning = {problem, device, cost};
  const auto is_wanted = [&](KernelKind kind) {
    if (!options.kernel.empty()) return options.kernel == name(kind);
    const bool is_for_more = is_large_m(kind) && tokens_of(kind) <= 64;
    return !is_for_more || problem.m > kMostOfGemv;
  };
  std::vector<Plan> plans;
  if (options.batch_invariant) {
    add_batch_invariant_plans(plans, planning);
    std::erase_if(plans, [&](const Plan& plan) { return !is_wanted(plan.kernel); });
  }
  for (int i = 0; i < kKernelKinds && !options.batch_invariant; ++i) {
    const KernelKind kind = static_cast<KernelKind>(i);
    if (is_wanted(kind)) add_plans(plans, planning, kind);
  }
  for (Plan& plan : plans) {
    plan.m = problem.m;
    if (prepares_inputs(problem.weights)) {
      plan.workspace_bytes = prepared_bytes(problem.m, problem.weights.cols);
    }
  }
  std::stable_sort(plans.begin(), plans.end(),
                   [](const Plan& a, const Plan& b) { return a.microseconds < b.microseconds; });
  return plans;
}

Result<Plan> plan_linear(const Problem& problem, const Device& device, const PlanOptions& options) {
  constexpr int64_t kMax = INT32_MAX;
  const PackedFormat& f = problem.weights;
  if (problem.m < 1 || problem.m > kMax || f.rows > kMax || f.cols > kMax) {
    return Error{"cuda.shape", "linear: expected 1 to 2^31 - 1 tokens, outputs and inputs, found " +
                                   std::to_string(problem.m) + ", " + std::to_string(f.rows) +
                                   " and " + std::to_string(f.cols)};
  }
  const std::vector<Plan> plans = plan_candidates(problem, device, options);
  if (plans.empty()) return no_plan(problem, device, options);
  return plans.front();
}

std::string to_string(const Problem& problem, const Plan& plan) {
  const std::string partition = plan.kernel == KernelKind::kGemv ? describe_gemv(plan)
                                : is_small_m(plan.kernel)        ? describe_small_m(plan)
                                                                 : describe_large_m(plan);
  const int64_t tenths = std::llround(plan.microseconds * 10);
  return std::string(name(plan.kernel)) + " " + shape_of(problem) + ": " + partition + ", " +
         std::to_string(plan.shared_bytes / 1024) + " KiB, expected " +
         std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " us";
}

}  // namespace subbyte::cuda
