#include <algorithm>
#include <optional>

#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/small_m/plan.h"

namespace subbyte::cuda {
namespace {

/// Tokens of an expert, if all have as many, from which tiles of 64 waste less than they save.
constexpr int64_t kTokensOfSmallM64 = 24;
/// Tiles that the CTAs of a batch-invariant plan are for.
constexpr int64_t kInvariantTiles = 16;
constexpr int kStaticSharedBytes = 1024;  // LinearArguments, and what the kernel's own takes

}  // namespace

ExpertTiles expert_tiles(int64_t tokens, int64_t experts, int64_t top_k, bool batch_invariant) {
  const int64_t routes = tokens * top_k;
  ExpertTiles tiles;
  if (batch_invariant) {
    tiles.kernel = KernelKind::kSmallM16;
  } else if (tokens > tokens_of(KernelKind::kSmallM8)) {
    const bool many = routes >= kTokensOfSmallM64 * experts;
    tiles.kernel = many ? KernelKind::kSmallM64 : KernelKind::kSmallM16;
  }
  // The most are those of routes spread over all experts: one each, and whole ones of the rest.
  const int64_t used = std::min(experts, routes);
  tiles.count = used + (routes - used) / tokens_of(tiles.kernel);
  return tiles;
}

Result<Plan> plan_experts(const PackedFormat& format, Number number, const ExpertTiles& tiles,
                          const Device& device, bool batch_invariant) {
  Device available = device;
  available.shared_bytes -= kStaticSharedBytes;
  const CostModel cost = cost_model(device);
  const Problem problem = {format, number, tokens_of(tiles.kernel)};
  const int64_t count = batch_invariant ? kInvariantTiles : std::max<int64_t>(tiles.count, 1);
  const auto plan = plan_small_m_ctas({problem, available, cost}, tiles.kernel,
                                      divide_up(device.multiprocessors, count));
  if (plan) return *plan;
  return Error{"cuda.kernel",
               "experts of " + to_string(format.source) + ", " + std::to_string(format.rows) +
                   " x " + std::to_string(format.cols) + ": no kernel has room for them in " +
                   std::to_string(available.shared_bytes) + " bytes of shared memory"};
}

}  // namespace subbyte::cuda
