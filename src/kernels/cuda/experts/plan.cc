#include <algorithm>
#include <optional>

#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/large_m/plan.h"
#include "kernels/cuda/small_m/plan.h"

namespace subbyte::cuda {
namespace {

/// Tokens of an expert, if all have as many, from which tiles of 64 waste less than they save.
constexpr int64_t kTokensOfSmallM64 = 24;
/// The same for tiles of 256 by wgmma.
constexpr int64_t kTokensOfLargeM256 = 64;
/// Tiles that the CTAs of a batch-invariant plan are for.
constexpr int64_t kInvariantTiles = 16;
constexpr int kStaticSharedBytes = 1024;  // LinearArguments, and what the kernel's own takes

Device without_static_memory(Device device) {
  device.shared_bytes -= kStaticSharedBytes;
  return device;
}

}  // namespace

ExpertTiles expert_tiles(int64_t tokens, const ExpertRules& rules) {
  const int64_t routes = tokens * rules.top_k;
  ExpertTiles tiles;
  if (rules.batch_invariant) {
    tiles.kernel = KernelKind::kSmallM16;
  } else if (rules.has_large_m && routes >= kTokensOfLargeM256 * rules.experts) {
    tiles.kernel = KernelKind::kLargeM256;
  } else if (tokens > tokens_of(KernelKind::kSmallM8)) {
    const bool many = routes >= kTokensOfSmallM64 * rules.experts;
    tiles.kernel = many ? KernelKind::kSmallM64 : KernelKind::kSmallM16;
  }
  // The most are those of routes spread over all experts: one each, and whole ones of the rest.
  const int64_t used = std::min(rules.experts, routes);
  tiles.count = used + (routes - used) / tokens_of(tiles.kernel);
  return tiles;
}

bool has_large_m(const PackedFormat& format, Number number, const Device& device) {
  if (format.gather_begin != format.bytes || format.cols % 8 != 0) return false;
  const Problem problem = {format, number, 1};
  const CostModel cost = cost_model(device);
  const Device available = without_static_memory(device);
  return plan_large_m_tiles({problem, available, cost}, KernelKind::kLargeM256, 1).has_value();
}

Result<Plan> plan_experts(const PackedFormat& format, Number number, const ExpertTiles& tiles,
                          const Device& device, bool batch_invariant) {
  const Device available = without_static_memory(device);
  const CostModel cost = cost_model(device);
  const Problem problem = {format, number, tokens_of(tiles.kernel)};
  const Planning planning = {problem, available, cost};
  const int64_t count = batch_invariant ? kInvariantTiles : std::max<int64_t>(tiles.count, 1);
  const auto plan =
      tiles.kernel == KernelKind::kLargeM256
          ? plan_large_m_tiles(planning, tiles.kernel, count)
          : plan_small_m_ctas(planning, tiles.kernel, divide_up(device.multiprocessors, count));
  if (plan) return *plan;
  return Error{"cuda.kernel",
               "experts of " + to_string(format.source) + ", " + std::to_string(format.rows) +
                   " x " + std::to_string(format.cols) + ": no kernel has room for them in " +
                   std::to_string(available.shared_bytes) + " bytes of shared memory"};
}

}  // namespace subbyte::cuda
