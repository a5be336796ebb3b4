#include "kernels/cuda/large_m/plan.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace subbyte::cuda {
namespace {

/// What the templates of the kernel say of it.
struct Resources {
  int weight_slots;
  int shared_bytes;
  bool fit;
};

/// With as many slots as there is room for.
template <class Shape>
Resources resources_of(const PackedFormat& f, const Device& device, int batch) {
  const int stream = in_superblocks(f)
                         ? large_m_stream_bytes(batch, f.bits, superblock_of(f))
                         : large_m_stream_bytes(batch, f.bits, f.groups_per_tile,
                                                scale_bytes(f.scale_kind), f.zero_bytes);
  Resources found = {};
  for (found.weight_slots = Shape::kWeightSlots; found.weight_slots >= kLeastWeightSlots;
       --found.weight_slots) {
    found.shared_bytes = large_m_shared<Shape>(table_of(f), stream, found.weight_slots).bytes;
    found.fit = found.shared_bytes <= device.shared_bytes;
    if (found.fit) break;
  }
  return found;
}

Resources resources_of(const PackedFormat& f, const Device& device, KernelKind kind,
                       bool in_blocks) {
  if (in_blocks) return resources_of<LargeMBlockShape>(f, device, LargeMBlockShape::kBatch);
  const int batch = weight_batch(f.bits);
  switch (kind) {
    case KernelKind::kLargeM16:
      return resources_of<LargeMShape<16>>(f, device, batch);
    case KernelKind::kLargeM32:
      return resources_of<LargeMShape<32>>(f, device, batch);
    case KernelKind::kLargeM64:
      return resources_of<LargeMShape<64>>(f, device, batch);
    case KernelKind::kLargeM128:
      return resources_of<LargeMShape<128>>(f, device, batch);
    default:
      return resources_of<LargeMShape<256>>(f, device, batch);
  }
}

/// Multiprocessors that clusters of `ctas` can have, a CTA one. Larger ones leave some idle, as a
/// GPC has numbers of them that are not divisible by 4.
int64_t usable_multiprocessors(const Device& device, int ctas) {
  const int tenths = ctas <= 2 ? 10 : ctas <= 4 ? 9 : 8;
  return std::max(device.multiprocessors * tenths / 10 / ctas * ctas, ctas);
}

/// Seconds in which each CTA multiplies 64 inputs.
double k_tile_seconds(const Planning& planning, const Plan& plan) {
  const auto& [problem, device, all_costs] = planning;
  const CostModel::LargeM& cost = all_costs.large_m;
  const int kind = static_cast<int>(plan.kernel) - static_cast<int>(KernelKind::kLargeM16);
  const double compute = cost.k_tile[kind];
  const double weights = kLargeMRows / 16.0 * bytes_of_tile(problem.weights);
  const double activations = plan.large_m.copied_tokens * kTileCols * 2.0;
  const double read = std::max((weights + activations) * plan.ctas / cost.l2_rate,
                               weights * device.multiprocessors / device.bytes_per_second);
  return std::max(compute, read) + cost.not_hidden * std::min(compute, read);
}

/// Output tiles that a multiprocessor has; a split one counts as the part of it that a CTA has.
double tiles_of_each(const Device& device, const Plan& plan, int64_t split_tiles) {
  const LargeMPartition& p = plan.large_m;
  const int64_t at_once = usable_multiprocessors(device, plan.cluster);
  const int64_t whole = divide_up(int64_t{p.full_waves} * plan.cluster, at_once);
  const int64_t parts = divide_up(split_tiles * plan.cluster, at_once);
  return static_cast<double>(whole) + static_cast<double>(parts) / p.splits;
}

double seconds(const Planning& planning, const Plan& plan, int64_t split_tiles) {
  const Device& device = planning.device;
  const CostModel::LargeM& cost = planning.cost.large_m;
  const LargeMPartition& p = plan.large_m;
  const double tiles = tiles_of_each(device, plan, split_tiles);
  const double waves =
      std::ceil((static_cast<double>(p.full_waves) + static_cast<double>(split_tiles)) *
                plan.cluster / plan.ctas);
  const double tokens = tokens_of(plan.kernel);
  const double exchange = p.splits > 1 ? cost.exchange + cost.exchange_per_token * tokens : 0;
  return cost.launch + cost.cluster_doubling * std::log2(plan.cluster) +
         tiles * static_cast<double>(planning.problem.weights.tiles) *
             k_tile_seconds(planning, plan) +
         waves * (cost.tile_end + cost.tile_end_per_token * tokens) +
         std::max(1.0, waves - (p.full_waves > 0 ? 1 : 0)) * exchange;
}

/// Tokens of a tile that each of `ctas` CTAs copies, where there are `tokens`: with the swizzle
/// eight rows belong together, and rows that are not there take their time.
int copied_tokens(KernelKind kind, int64_t tokens, int ctas) {
  const int64_t share = std::min<int64_t>(divide_up(tokens, ctas), tokens_of(kind) / ctas);
  return static_cast<int>(divide_up(share, 8) * 8);
}

/// How CTAs of a cluster share: tokens by multicast, outputs by split-K. With `has_full_waves` only
/// the tiles that do not fill a wave are split.
struct Choice {
  int multicast;
  int splits;
  bool has_full_waves;
  bool in_blocks = false;
};

std::optional<Plan> plan_of(const Planning& planning, KernelKind kind, const Choice& choice) {
  const auto& [problem, device, cost] = planning;
  const auto [multicast, splits, has_full_waves, in_blocks] = choice;
  const PackedFormat& f = problem.weights;
  const Resources resources = resources_of(f, device, kind, in_blocks);
  const int64_t tiles_n = divide_up(f.strips * kStripRows, kLargeMRows);
  const int64_t tiles_m = divide_up(problem.m, tokens_of(kind));
  if (!resources.fit || splits > f.tiles || multicast > tiles_n) return std::nullopt;
  Plan plan;
  plan.kernel = kind;
  plan.shared_bytes = resources.shared_bytes;
  plan.cluster = multicast * splits;
  LargeMPartition& p = plan.large_m;
  p.multicast = multicast;
  p.splits = splits;
  p.tiles_n = static_cast<int>(divide_up(tiles_n, multicast) * multicast);
  p.tiles_m = static_cast<int>(tiles_m);
  p.swizzle_width = 2048 / tokens_of(kind);
  p.copied_tokens = copied_tokens(kind, tiles_m == 1 ? problem.m : tokens_of(kind), multicast);
  p.k_tiles = parts_of(f.tiles, splits);
  p.weight_slots = resources.weight_slots;
  const int64_t multiprocessors = usable_multiprocessors(device, plan.cluster);
  const int64_t tiles = p.tiles_n / multicast * tiles_m;  // of clusters
  if (has_full_waves) {
    const int64_t at_once = multiprocessors / multicast;
    p.full_waves = static_cast<int>(tiles / at_once * at_once / splits);
    if (p.full_waves == 0 || int64_t{p.full_waves} * splits == tiles) return std::nullopt;
  }
  const int64_t split_tiles = tiles - int64_t{p.full_waves} * splits;
  const int64_t resident = multiprocessors / plan.cluster;
  // Of large clusters it is not known how many run at once: a second item would wait for the first
  // of one that does not.
  if (plan.cluster > 4 && (has_full_waves || tiles > resident)) return std::nullopt;
  plan.ctas = static_cast<int>(std::min(p.full_waves + split_tiles, resident)) * plan.cluster;
  plan.threads = kLargeMThreads;
  plan.microseconds = 1e6 * seconds(planning, plan, split_tiles);
  if (!problem.aligned_x || f.gather_begin != f.bytes) {
    plan.workspace_bytes = problem.m * divide_up(f.cols, 8) * 16;
    plan.microseconds += 2;
  }
  return plan;
}

}  // namespace

void add_large_m_plans(std::vector<Plan>& plans, const Planning& planning, KernelKind kind,
                       bool in_blocks) {
  if (planning.device.compute_capability != 90) return;
  for (const int multicast : {1, 2}) {
    for (int splits = 1; multicast * splits <= kMaxSplitsOfK; ++splits) {
      for (const bool has_full_waves : {false, true}) {
        if (has_full_waves && splits == 1) continue;
        const auto plan = plan_of(planning, kind, {multicast, splits, has_full_waves, in_blocks});
        if (plan) plans.push_back(*plan);
      }
    }
  }
}

std::optional<Plan> plan_large_m_tiles(const Planning& planning, KernelKind kind,
                                       int64_t token_tiles) {
  if (planning.device.compute_capability != 90) return std::nullopt;
  Problem tiles = planning.problem;
  tiles.m = token_tiles * tokens_of(kind);
  const Planning of_tiles = {tiles, planning.device, planning.cost};
  const auto shared = plan_of(of_tiles, kind, {2, 1, false});
  return shared ? shared : plan_of(of_tiles, kind, {1, 1, false});
}

std::string describe_large_m(const Plan& plan) {
  const LargeMPartition& p = plan.large_m;
  return std::to_string(p.tiles_n) + " x " + std::to_string(p.tiles_m) + " tiles, multicast to " +
         std::to_string(p.multicast) + ", split-K " + std::to_string(p.splits) +
         (p.full_waves > 0 ? " after " + std::to_string(p.full_waves) + " full waves" : "");
}

}  // namespace subbyte::cuda
