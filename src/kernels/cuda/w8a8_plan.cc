// W8A8: which products there are, and their plans.

#include <algorithm>
#include <string>

#include "kernels/cuda/large_m/plan.h"
#include "kernels/cuda/w8a8.h"

namespace subbyte::cuda {
namespace {

/// The time of products of 64 inputs, of that of large_m128 with 16 bits.
constexpr double kShareOfTime = 0.5;

int64_t up(int64_t value, int64_t multiple) {
  return divide_up(value, multiple) * multiple;
}

}  // namespace

bool has_w8a8_products(const PackedFormat& format) {
  return format.decoder == DecoderKind::kE4M3 && format.source.group_size == kW8A8Group &&
         format.cols % kW8A8Group == 0 && format.gather_begin == format.bytes;
}

RowsInE4M3 rows_in_e4m3(int64_t m, int64_t cols) {
  constexpr int64_t kAligned = 256;
  RowsInE4M3 rows = {};
  rows.stride = up(m, kW8A8Tokens);
  rows.factors_begin = up(m * cols, kAligned);
  rows.bytes = rows.factors_begin + cols / kW8A8Group * rows.stride * int64_t{sizeof(float)};
  return rows;
}

std::vector<Plan> w8a8_candidates(const Problem& problem, const Device& device) {
  const PackedFormat& f = problem.weights;
  std::vector<Plan> plans;
  if (!has_w8a8_products(f) || !problem.aligned_x) return plans;
  CostModel cost = cost_model(device);
  constexpr auto kKind = KernelKind::kLargeM128;
  cost.large_m.k_tile[static_cast<int>(kKind) - static_cast<int>(KernelKind::kLargeM16)] *=
      kShareOfTime;
  add_large_m_plans(plans, {problem, device, cost}, kKind, true);
  // Parts of K end where groups do.
  constexpr int64_t kGroupTiles = kW8A8Group / kTileCols;
  std::erase_if(
      plans, [&](const Plan& plan) { return f.tiles % (kGroupTiles * plan.large_m.splits) != 0; });
  for (Plan& plan : plans) {
    plan.m = problem.m;
    plan.workspace_bytes = rows_in_e4m3(problem.m, f.cols).bytes;
  }
  std::ranges::stable_sort(plans, {}, &Plan::microseconds);
  return plans;
}

Result<Plan> plan_w8a8(const Problem& problem, const Device& device) {
  constexpr int64_t kMax = INT32_MAX;
  const PackedFormat& f = problem.weights;
  if (problem.m < 1 || problem.m > kMax) {
    return Error{"cuda.shape", "linear in 8 bits: expected 1 to 2^31 - 1 tokens, found " +
                                   std::to_string(problem.m)};
  }
  if (!has_w8a8_products(f)) {
    return Error{"cuda.kernel",
                 "linear in 8 bits: expected weights in e4m3 with groups of 128 that fill their "
                 "rows, found " +
                     to_string(f.source) + " with " + std::to_string(f.cols) + " inputs"};
  }
  if (device.compute_capability != 90 || !problem.aligned_x) {
    return Error{"cuda.kernel",
                 "linear in 8 bits: expected compute capability 9.0 and rows of x at multiples of "
                 "16 bytes, found " +
                     std::to_string(device.compute_capability / 10) + "." +
                     std::to_string(device.compute_capability % 10) +
                     (problem.aligned_x ? "" : " and others")};
  }
  std::vector<Plan> plans = w8a8_candidates(problem, device);
  if (plans.empty()) {
    return Error{"cuda.kernel",
                 "linear in 8 bits: " + to_string(f.source) + ": no kernel fits into " +
                     std::to_string(device.shared_bytes / 1024) + " KiB of shared memory"};
  }
  return plans.front();
}

}  // namespace subbyte::cuda
