#include "kernels/cuda/small_m/plan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

namespace subbyte::cuda {
namespace {

/// What a partition needs of shared memory, and where.
void set_shared(const Problem& problem, int tokens, SmallMPartition* p) {
  const PackedFormat& f = problem.weights;
  const bool has_zeros = f.decoder == DecoderKind::kIntegers;
  const int blocks = p->one_group != 0 ? 1 : 2;
  const int block = blocks * f.groups_per_tile * kStripRows;
  // Next to offsets there are constant zero points.
  const int offset_size = is_offset(f.source.zero) ? f.zero_bytes : 0;
  const int zero_size = !zeros_beside(f) ? 0 : f.bits == 8 ? 2 : 1;
  p->pairs_per_block = f.tiles_per_block == blocks % 2 + 1 ? 1 : 2;
  p->pair_input_sums = has_zeros ? blocks * f.groups_per_tile : 0;
  p->pair_scales = block * scale_bytes(f.scale_kind);
  if (in_superblocks(f)) {
    const Superblock form = superblock_of(f);
    p->pair_scales = form.factors() + 2 * form.tile_integers();
  }
  p->pair_zeros = block * f.zero_bytes;
  p->slot_bytes = 2 * tile_bytes(f.bits) + p->pair_scales + block * (offset_size + zero_size);
  p->ring_bytes = p->depth * p->slot_bytes;
  SmallMSizes sizes = {};
  sizes.table = table_of(f);
  sizes.ring = p->ring_bytes;
  sizes.tokens = tokens;
  sizes.x_rows = static_cast<int>(std::min<int64_t>(tokens, problem.m));
  sizes.chunk_pairs = p->chunk_pairs;
  sizes.pair_input_sums = p->pair_input_sums;
  sizes.keeps_partials = p->splits > 1 || p->chunks > 1;
  sizes.strips = p->strips.size(0);
  p->shared = small_m_shared(sizes);
}

/// Tokens up to which the time is that of reading.
constexpr int64_t kFewTokens = 8;

/// By how much more tokens take longer than that: sums of each group are scaled for each of them.
double share_of_more_tokens(const CostModel::SmallM& cost, const PackedFormat& f) {
  return 1 + cost.doubling_of_groups * std::log2(f.groups_per_tile) +
         (in_superblocks(f) ? cost.two_levels : 0);
}

double seconds(const Planning& planning, const SmallMPartition& p, int tokens) {
  const auto& [problem, device, all_costs] = planning;
  const CostModel::SmallM& cost = all_costs.small_m;
  const PackedFormat& f = problem.weights;
  const int warps = small_m_warps(tokens);
  const double strips = p.strips.size(0);
  const double pairs = p.pairs.size(0);
  const double waves = std::max(
      1.0, static_cast<double>(p.clusters) * p.splits * p.token_tiles / device.multiprocessors);
  const double pairs_of_warp = std::ceil(strips * pairs / warps);
  const double runs = p.chunks + strips * p.chunks / warps;
  const double instructions = cost.warp_instructions + runs * cost.run_instructions +
                              pairs_of_warp * cost.pair_instructions[tokens == 8    ? 0
                                                                     : tokens == 16 ? 1
                                                                                    : 2];
  const double issue = instructions * (warps / 4.0) / (device.clock_hz * cost.issue_rate);
  const double share = device.bytes_per_second / device.multiprocessors;
  // Bytes in flight, against what the memory's latency needs.
  const double ahead = warps * 2.0 * tile_bytes(f.bits) * std::min<double>(p.depth, pairs_of_warp);
  const double slowdown = std::max(1.0, share * cost.memory_latency / ahead);
  const double read = strips * pairs * 2 * bytes_of_tile(f) / share * slowdown;
  const double stage = static_cast<double>(std::min<int64_t>(tokens, problem.m)) * pairs * 2 *
                       kTileCols * 2 / (1.3 * share);
  const double end = (p.splits > 1 ? cost.cluster_end : 0) + (p.chunks - 1) * cost.chunk;
  const bool wants_depth = f.decoder == DecoderKind::kIntegers;
  const double depth = (p.depth == kSmallMDepth) == wants_depth ? 0 : cost.other_depth;
  const double all = cost.launch + depth +
                     cost.overhead * std::ceil(waves) * (std::max(issue, read) + stage + end);
  return problem.m <= kFewTokens ? all : all * share_of_more_tokens(cost, f);
}

/// What decides in which order products are added.
struct Choice {
  int splits = 1;
  int depth = kSmallMDepth;
  int clusters = 0;     // 0: as many as keep the multiprocessors busy
  int chunk_pairs = 0;  // 0: the largest that fits
};

/// Sets the chunks to the largest that fit, if there is one.
bool set_chunk_that_fits(const Planning& planning, int tokens, SmallMPartition* p) {
  const int pairs = p->pairs.size(0);
  for (int chunks = 1; chunks <= pairs; ++chunks) {
    p->chunk_pairs = static_cast<int>(divide_up(pairs, chunks));
    p->chunks = static_cast<int>(divide_up(pairs, p->chunk_pairs));
    set_shared(planning.problem, tokens, p);
    if (p->shared.bytes <= planning.device.shared_bytes) return true;
  }
  return false;
}

/// A CTA whose inputs come in chunks keeps the partials of all its strips. Where they do not fit
/// there are more CTAs with fewer strips.
bool set_clusters_and_chunks(const Planning& planning, int tokens, const Choice& choice,
                             SmallMPartition* p) {
  const int64_t strips = planning.problem.weights.strips;
  const int64_t resident = std::max<int64_t>(
      1, planning.device.multiprocessors / p->splits / std::min<int64_t>(p->token_tiles, 4));
  int64_t clusters = choice.clusters != 0 ? choice.clusters : std::min(resident, strips);
  for (;;) {
    p->clusters = static_cast<int>(clusters);
    p->strips = parts_of(strips, clusters);
    if (choice.chunk_pairs != 0) {
      p->chunk_pairs = choice.chunk_pairs;
      p->chunks = static_cast<int>(divide_up(p->pairs.size(0), p->chunk_pairs));
      set_shared(planning.problem, tokens, p);
      return p->shared.bytes <= planning.device.shared_bytes;
    }
    if (set_chunk_that_fits(planning, tokens, p)) return true;
    if (choice.clusters != 0 || clusters == strips) return false;
    clusters = std::min(2 * clusters, strips);
  }
}

/// The plan of a kernel with this choice, or none if it does not fit.
std::optional<Plan> plan_of(const Planning& planning, KernelKind kind, const Choice& choice) {
  const PackedFormat& f = planning.problem.weights;
  const int tokens = tokens_of(kind);
  const int64_t pairs = divide_up(f.tiles, 2);
  if (choice.splits > pairs) return std::nullopt;
  Plan plan;
  plan.kernel = kind;
  SmallMPartition& p = plan.small_m;
  p.splits = choice.splits;
  p.splits_log2 = std::countr_zero(static_cast<unsigned>(p.splits));
  p.token_tiles = static_cast<int>(divide_up(planning.problem.m, tokens));
  p.depth = choice.depth;
  p.one_group = pair_is_one_group(f) ? 1 : 0;
  p.pairs = parts_of(pairs, p.splits);
  if (!set_clusters_and_chunks(planning, tokens, choice, &p)) return std::nullopt;
  const int64_t ctas = int64_t{p.clusters} * p.splits * p.token_tiles;
  if (ctas > INT32_MAX) return std::nullopt;
  plan.ctas = static_cast<int>(ctas);
  plan.threads = small_m_warps(tokens) * kLanes;
  plan.cluster = p.splits;
  plan.shared_bytes = p.shared.bytes;
  plan.microseconds = seconds(planning, p, tokens) * 1e6;
  return plan;
}

/// Larger clusters leave multiprocessors idle, whose number in a GPC is not divisible by 4.
int largest_cluster(const Device& device) {
  return device.compute_capability >= 90 ? 2 : 1;
}

/// The order of additions depends on what Choice has. So that is chosen for the most tokens of
/// `large`, whatever m is, and such that `small`, which is for fewer, has it too.
bool add_invariant(std::vector<Plan>& plans, const Planning& planning, KernelKind small,
                   KernelKind large) {
  Problem most = planning.problem;
  most.m = tokens_of(large);
  std::vector<Plan> models;
  add_small_m_plans(models, {most, planning.device, planning.cost}, large);
  std::stable_sort(models.begin(), models.end(),
                   [](const Plan& a, const Plan& b) { return a.microseconds < b.microseconds; });
  for (const Plan& model : models) {
    const SmallMPartition& p = model.small_m;
    const Choice choice = {p.splits, p.depth, p.clusters, p.chunk_pairs};
    Problem few = planning.problem;
    few.m = tokens_of(small);
    if (!plan_of({few, planning.device, planning.cost}, small, choice)) continue;
    const auto plan =
        plan_of(planning, planning.problem.m <= tokens_of(small) ? small : large, choice);
    if (plan) plans.push_back(*plan);
    return true;
  }
  return false;
}

}  // namespace

void add_small_m_plans(std::vector<Plan>& plans, const Planning& planning, KernelKind kind) {
  for (int splits = 1; splits <= largest_cluster(planning.device); splits *= 2) {
    for (const int depth : {kSmallMDepth, kSmallMDepth / 2}) {
      const auto plan = plan_of(planning, kind, {splits, depth});
      if (plan) plans.push_back(*plan);
    }
  }
}

std::optional<Plan> plan_small_m_ctas(const Planning& planning, KernelKind kind, int64_t ctas) {
  const PackedFormat& f = planning.problem.weights;
  const bool wants_depth = f.decoder == DecoderKind::kIntegers;
  const int least = f.bits > 8 ? 1 : kSmallMDepth / 2;  // slots are large there
  for (int depth = wants_depth ? kSmallMDepth : kSmallMDepth / 2; depth >= least; depth /= 2) {
    for (int64_t clusters = std::clamp<int64_t>(ctas, 1, f.strips);;
         clusters = std::min(2 * clusters, f.strips)) {
      auto plan = plan_of(planning, kind, {1, depth, static_cast<int>(clusters)});
      if (plan) return plan;
      if (clusters == f.strips) break;
    }
  }
  return std::nullopt;
}

/// small_m64 for all where small_m16, which has more warps, does not fit.
void add_batch_invariant_plans(std::vector<Plan>& plans, const Planning& planning) {
  if (add_invariant(plans, planning, KernelKind::kSmallM8, KernelKind::kSmallM16)) return;
  add_invariant(plans, planning, KernelKind::kSmallM64, KernelKind::kSmallM64);
}

std::string describe_small_m(const Plan& plan) {
  const SmallMPartition& p = plan.small_m;
  return std::to_string(p.clusters) + " clusters of " + std::to_string(p.splits) + ", " +
         std::to_string(p.depth) + " pairs in flight, chunks of " +
         std::to_string(int64_t{2} * p.chunk_pairs * kTileCols) + " inputs";
}

}  // namespace subbyte::cuda
