#include <algorithm>
#include <optional>

#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/large_m/plan.h"
#include "kernels/cuda/small_m/plan.h"

namespace subbyte::cuda {
namespace {

/// Tokens up to which panels, whose CTAs take longer to begin, gain nothing.
constexpr int64_t kTokensOfSmallExperts = 8;
/// Tokens of an expert, if all have as many, up to which tiles of 8 read few weights twice. They
/// take two thirds of the instructions of tiles of 16, which bound these.
constexpr int64_t kTokensOfSmallM8 = 5;
/// The same, from which tiles of 64 waste less than they save.
constexpr int64_t kTokensOfSmallM64 = 24;
/// The same for tiles of 128 and 256 by wgmma.
constexpr int64_t kTokensOfLargeM128 = 24;
constexpr int64_t kTokensOfLargeM256 = 256;
/// Tiles that the CTAs of a batch-invariant plan are for.
constexpr int64_t kInvariantTiles = 16;
/// Until a CTA of few tokens multiplies: filled rings, activations in shared memory.
constexpr double kStartSeconds = 3e-6;
constexpr int kStaticSharedBytes = 1024;  // LinearArguments, and what the kernel's own takes

Device without_static_memory(Device device) {
  device.shared_bytes -= kStaticSharedBytes;
  return device;
}

ExpertPlan with_parts(const Plan& plan, const Planning& planning, const ExpertTiles& tiles,
                      bool batch_invariant) {
  const auto& [problem, device, cost] = planning;
  const PackedFormat& format = problem.weights;
  const double bytes = static_cast<double>(format.bytes) / static_cast<double>(format.strips);
  const double share = device.bytes_per_second / device.multiprocessors;
  ExpertPlan with = {plan, {}};
  with.parts.strips = static_cast<int32_t>(format.strips);
  with.parts.least = plan.small_m.clusters;
  with.parts.ctas_at_once = batch_invariant ? 0 : device.multiprocessors;
  with.parts.start = static_cast<int32_t>(kStartSeconds * share / bytes);
  const int count = static_cast<int>(std::max<int64_t>(tiles.count, 1));
  if (tiles.are_all_used) {
    with.parts.least = with.parts.of_tile(count);
    with.parts.ctas_at_once = 0;
  }
  with.ctas = static_cast<int>(with.parts.max_ctas(count));
  return with;
}

/// Says whether the panel kernel has these weights, whatever room it needs.
bool has_panels(const PackedFormat& f, const Device& device) {
  const bool has_batches =
      f.blocks == 1 || f.tiles_per_block <= 2 || f.tiles_per_block == kPanelBatch;
  const bool has_offsets = is_offset(f.source.zero) && !in_superblocks(f);
  return device.compute_capability == 90 && f.decoder == DecoderKind::kIntegers && has_batches &&
         !has_offsets && f.gather_begin == f.bytes && f.cols % 8 == 0 && f.rows % kStripRows == 0;
}

/// `shared_bytes`: of the CTA.
PanelPartition panel_of(const PackedFormat& f, int* shared_bytes) {
  constexpr int kWarps = kPanelThreads / kLanes;
  PanelPartition p = {};
  p.units = static_cast<int32_t>(divide_up(f.strips, kUnitStrips));
  p.batches = static_cast<int32_t>(divide_up(f.tiles, kPanelBatch));
  p.one_group = pair_is_one_group(f) ? 1 : 0;
  // The scales of groups within tiles are apart for each tile, also where there is one tile alone.
  const bool has_own_blocks = f.blocks > 1 || f.groups_per_tile > 1;
  if (has_own_blocks && f.tiles_per_block < kPanelBatch) {
    p.pair_blocks = static_cast<int32_t>(2 / f.tiles_per_block);
  }
  const int blocks = std::max(1, 2 * p.pair_blocks);  // of a batch
  const int block = f.groups_per_tile * kStripRows;
  p.step_blocks = f.blocks == 1 ? 0 : blocks;
  p.scale_bytes =
      in_superblocks(f) ? superblock_of(f).bytes() : blocks * block * scale_bytes(f.scale_kind);
  p.zero_bytes = blocks * block * f.zero_bytes;
  const int zeros = zeros_beside(f) ? blocks * block * (f.bits == 8 ? 2 : 1) : 0;
  p.slot_bytes = kPanelBatch * tile_bytes(f.bits) + p.scale_bytes + zeros;
  const int sums = p.one_group != 0 ? 2 : kPanelBatch * f.groups_per_tile;
  p.x_sums = p.batches * kPanelBatch * kPanelTokens * kTileCols * 2;
  p.heads = p.x_sums + p.batches * sums * kPanelTokens * 4;
  p.rings = p.heads + (kPanelWarpgroups - 1) * kPanelTokens / 2 * 128 * 4;
  p.scale_values = p.rings + kWarps * panel_depth(f.bits) * p.slot_bytes;
  p.table = p.scale_values + (scale_bytes(f.scale_kind) == 1 ? kScaleValuesBytes : 0);
  constexpr int kAlignment = 1024;
  *shared_bytes = p.table + table_of(f) + kAlignment;
  return p;
}

std::optional<ExpertPlan> plan_panel(const PackedFormat& format, const Device& device,
                                     int64_t tiles) {
  if (!has_panels(format, device)) return std::nullopt;
  ExpertPlan plan;
  plan.kernel = KernelKind::kPanel16;
  plan.threads = kPanelThreads;
  plan.panel = panel_of(format, &plan.shared_bytes);
  plan.ctas = static_cast<int>(std::min<int64_t>(tiles * plan.panel.units, device.multiprocessors));
  if (plan.shared_bytes > device.shared_bytes) return std::nullopt;
  return plan;
}

}  // namespace

bool has_panel(const PackedFormat& format, const Device& device) {
  return plan_panel(format, without_static_memory(device), 1).has_value();
}

ExpertTiles expert_tiles(int64_t tokens, const ExpertRules& rules) {
  const int64_t routes = tokens * rules.top_k;
  ExpertTiles tiles;
  if (rules.batch_invariant) {
    tiles.kernel = KernelKind::kSmallM16;
  } else if (rules.has_large_m && routes >= kTokensOfLargeM128 * rules.experts) {
    const bool many = routes >= kTokensOfLargeM256 * rules.experts;
    tiles.kernel = many ? KernelKind::kLargeM256 : KernelKind::kLargeM128;
  } else if (rules.has_panel && tokens > kTokensOfSmallExperts &&
             routes < kTokensOfSmallM64 * rules.experts) {
    tiles.kernel = KernelKind::kPanel16;
  } else if (tokens > tokens_of(KernelKind::kSmallM8) &&
             routes > kTokensOfSmallM8 * rules.experts) {
    const bool many = routes >= kTokensOfSmallM64 * rules.experts;
    tiles.kernel = many ? KernelKind::kSmallM64 : KernelKind::kSmallM16;
  }
  // The most are those of routes spread over all experts: one each, and whole ones of the rest.
  const int64_t used = std::min(rules.experts, routes);
  tiles.are_all_used = tokens == 1;
  tiles.count = used + (routes - used) / tokens_of(tiles.kernel);
  return tiles;
}

bool has_large_m(const PackedFormat& format, Number number, const Device& device) {
  if (format.gather_begin != format.bytes || format.cols % 8 != 0) return false;
  const Problem problem = {format, number, 1};
  const CostModel cost = cost_model(device);
  const Device available = without_static_memory(device);
  const Planning planning = {problem, available, cost};
  return plan_large_m_tiles(planning, KernelKind::kLargeM128, 1).has_value() &&
         plan_large_m_tiles(planning, KernelKind::kLargeM256, 1).has_value();
}

Result<ExpertPlan> plan_experts(const PackedFormat& format, Number number, const ExpertTiles& tiles,
                                const Device& device, bool batch_invariant) {
  const Device available = without_static_memory(device);
  const CostModel cost = cost_model(device);
  const Problem problem = {format, number, tokens_of(tiles.kernel)};
  const Planning planning = {problem, available, cost};
  const int64_t count = std::max<int64_t>(tiles.count, 1);
  if (tiles.kernel == KernelKind::kPanel16) {
    const auto plan = plan_panel(format, available, count);
    if (plan) return *plan;
  } else if (reads_sorted_rows(tiles)) {
    const auto plan = plan_large_m_tiles(planning, tiles.kernel, count);
    if (plan) return ExpertPlan{*plan, {}};
  } else {
    const int64_t parts = batch_invariant ? divide_up(device.multiprocessors, kInvariantTiles) : 1;
    const auto plan = plan_small_m_ctas(planning, tiles.kernel, parts);
    if (plan) return with_parts(*plan, planning, tiles, batch_invariant);
  }
  return Error{"cuda.kernel",
               "experts of " + to_string(format.source) + ", " + std::to_string(format.rows) +
                   " x " + std::to_string(format.cols) + ": no kernel has room for them in " +
                   std::to_string(available.shared_bytes) + " bytes of shared memory"};
}

}  // namespace subbyte::cuda
