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
  int ctas;  // of a multiprocessor; 0: it does not fit
};

/// With as many slots as leave room for the CTAs that there should be, or else for one.
template <class Shape>
Resources resources_of(const PackedFormat& f, const Device& device, int batch) {
  constexpr int kReserved = 1024;  // by the system, for each CTA
  const int stream = in_superblocks(f)
                         ? large_m_stream_bytes(batch, f.bits, superblock_of(f))
                         : large_m_stream_bytes(batch, f.bits, f.groups_per_tile,
                                                scale_bytes(f.scale_kind), f.zero_bytes);
  Resources found = {};
  for (found.ctas = Shape::kCtasPerMultiprocessor; found.ctas >= 1; --found.ctas) {
    const int most = (device.shared_bytes + kReserved) / found.ctas - kReserved;
    for (found.weight_slots = Shape::kWeightSlots; found.weight_slots >= kLeastWeightSlots;
         --found.weight_slots) {
      found.shared_bytes = large_m_shared<Shape>(table_of(f), stream, found.weight_slots).bytes;
      if (found.shared_bytes <= most) return found;
    }
  }
  return found;
}

Resources resources_of(const PackedFormat& f, const Device& device, KernelKind kind,
                       bool in_blocks) {
  if (in_blocks) return resources_of<LargeMBlockShape>(f, device, LargeMBlockShape::kBatch);
  const int batch = weight_batch(f.bits);
  if (kind == KernelKind::kLargeM64) return resources_of<LargeMShape<64>>(f, device, batch);
  if (kind == KernelKind::kLargeM128) return resources_of<LargeMShape<128>>(f, device, batch);
  return resources_of<LargeMShape<256>>(f, device, batch);
}

/// Multiprocessors that clusters of `ctas` can have. Larger ones leave some idle, as a GPC has
/// numbers of them that are not divisible by 4.
int64_t usable_multiprocessors(const Device& device, int ctas) {
  const int usable = ctas <= 2 ? device.multiprocessors : device.multiprocessors * 9 / 10;
  return std::max(usable / ctas * ctas, ctas);
}

/// Two CTAs of a kernel are on a multiprocessor. Clusters of 4 have theirs side by side even if
/// there is room elsewhere.
bool share_multiprocessors(const Device& device, const Plan& plan, const Resources& resources) {
  return resources.ctas > 1 && (plan.ctas > device.multiprocessors || plan.cluster >= 4);
}

/// Seconds in which each CTA multiplies 64 inputs.
double k_tile_seconds(const Planning& planning, const Plan& plan, const Resources& resources) {
  const auto& [problem, device, all_costs] = planning;
  const CostModel::LargeM& cost = all_costs.large_m;
  const int kind = static_cast<int>(plan.kernel) - static_cast<int>(KernelKind::kLargeM64);
  const double compute =
      share_multiprocessors(device, plan, resources) ? cost.k_tile_two_ctas : cost.k_tile[kind];
  const double weights = kLargeMRows / 16.0 * bytes_of_tile(problem.weights);
  const double activations = tokens_of(plan.kernel) * kTileCols * 2.0 / plan.large_m.multicast;
  const double read = std::max((weights + activations) * plan.ctas / cost.l2_rate,
                               weights * device.multiprocessors / device.bytes_per_second);
  return std::max(compute, read) + cost.not_hidden * std::min(compute, read);
}

/// Output tiles that a multiprocessor has; a split one counts as the part of it that a CTA has.
double tiles_of_each(const Device& device, const Plan& plan, const Resources& resources,
                     int64_t split_tiles) {
  const LargeMPartition& p = plan.large_m;
  const int64_t at_once = usable_multiprocessors(device, plan.cluster);
  const double whole =
      static_cast<double>(divide_up(int64_t{p.full_waves} * plan.cluster, at_once));
  const double parts = static_cast<double>(divide_up(split_tiles * plan.cluster, at_once));
  const bool is_packed = share_multiprocessors(device, plan, resources) && plan.cluster >= 4;
  return whole + std::max(parts, is_packed ? 2.0 : 0.0) / p.splits;
}

double seconds(const Planning& planning, const Plan& plan, const Resources& resources,
               int64_t split_tiles) {
  const Device& device = planning.device;
  const CostModel::LargeM& cost = planning.cost.large_m;
  const LargeMPartition& p = plan.large_m;
  const double tiles = tiles_of_each(device, plan, resources, split_tiles);
  const double at_once = share_multiprocessors(device, plan, resources) ? 2 : 1;
  const double waves =
      std::ceil((static_cast<double>(p.full_waves) + static_cast<double>(split_tiles)) *
                plan.cluster / plan.ctas);
  const double exchange = p.splits > 1 ? cost.exchange_per_token * tokens_of(plan.kernel) : 0;
  return cost.launch + cost.cluster_doubling * std::log2(plan.cluster) +
         tiles * static_cast<double>(planning.problem.weights.tiles) *
             k_tile_seconds(planning, plan, resources) / at_once +
         waves * cost.tile_end + std::max(1.0, waves - (p.full_waves > 0 ? 1 : 0)) * exchange;
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
  if (resources.ctas == 0 || splits > f.tiles || multicast > tiles_n) {
    return std::nullopt;
  }
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
  const int64_t resident = resources.ctas * multiprocessors / plan.cluster;
  plan.ctas = static_cast<int>(std::min(p.full_waves + split_tiles, resident)) * plan.cluster;
  plan.threads = kLargeMThreads;
  plan.microseconds = 1e6 * seconds(planning, plan, resources, split_tiles);
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
    for (int splits = 1; multicast * splits <= 4; splits *= 2) {
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
