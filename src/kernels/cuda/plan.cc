#include "kernels/cuda/plan.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <optional>

#include "kernels/cuda/gemv/plan.h"
#include "kernels/cuda/plan_sizes.h"

namespace subbyte::cuda {
namespace {

constexpr std::array<std::string_view, kKernelKinds> kNames = {
    "gemv", "small_m8", "small_m16", "small_m64", "large_m64", "large_m128", "large_m256"};

bool is_small_m(KernelKind kind) {
  return kind >= KernelKind::kSmallM8 && kind <= KernelKind::kSmallM64;
}

// What an H200 showed (docs/kernels/cuda.md): fixed times, and instructions of a warp, those for a
// pair of tiles by small_m8, small_m16 and small_m64, with the share of the time in which one is
// issued.
constexpr double kLaunch = 1.5e-6;
constexpr double kClusterEnd = 1.6e-6;
constexpr double kLatency = 1.0e-6;
constexpr double kPairInstructions[] = {110, 160, 900};
constexpr double kRunInstructions = 100;
constexpr double kWarpInstructions = 500;
constexpr double kChunk = 1.0e-6;  // two barriers and the way to the second-level cache
constexpr double kIssued = 0.62;
constexpr double kSmallMSlower = 1.33;  // than all of that: warps that wait, blocks that end late
constexpr double kOtherDepth = 0.4e-6;  // integers are faster with kSmallMDepth, others with half
// Seconds for 64 inputs of a block of large_m64, large_m128 and large_m256; two blocks of large_m64
// on one multiprocessor take longer each. What all blocks read together comes from the second-level
// cache at kLargeMBytesPerSecond.
constexpr double kLargeMTile[] = {0.36e-6, 0.46e-6, 0.755e-6};
constexpr double kLargeMTileOfTwo = 0.565e-6;
constexpr double kLargeMBytesPerSecond = 6.0e12;
constexpr double kLargeMHidden = 0.05;  // what products or copies cost that the other one hides
constexpr double kLargeMLaunch = 4.0e-6;
constexpr double kLargeMTileEnd = 1.5e-6;
constexpr double kLargeMExchange = 2.2e-6 / 128;  // for each token of a tile
constexpr double kLargeMCluster = 0.3e-6;  // for each doubling of the blocks that start together

/// What a partition needs of shared memory, and where.
void set_shared(const Problem& problem, int tokens, SmallMPartition* p) {
  const PackedFormat& f = problem.weights;
  const bool has_zeros = f.decoder == DecoderKind::kIntegers;
  const int blocks = p->one_group != 0 ? 1 : 2;
  const int block = blocks * f.groups_per_tile * kStripRows;
  // Beside offsets there are constant zero points.
  const int offset_size = is_offset(f.source.zero) ? f.zero_bytes : 0;
  const int zero_size = !has_zeros ? 0 : f.bits == 8 ? 2 : 1;
  p->pairs_per_block = f.tiles_per_block == blocks % 2 + 1 ? 1 : 2;
  p->sums_of_pair = has_zeros ? blocks * f.groups_per_tile : 0;
  p->pair_scales = block * scale_bytes(f.scale_kind);
  p->pair_zeros = block * f.zero_bytes;
  p->slot_bytes = 2 * tile_bytes(f.bits) + p->pair_scales + block * (offset_size + zero_size);
  p->ring_bytes = p->depth * p->slot_bytes;
  SmallMSizes sizes = {};
  sizes.table = table_of(f);
  sizes.ring = p->ring_bytes;
  sizes.tokens = tokens;
  sizes.x_rows = static_cast<int>(std::min<int64_t>(tokens, problem.m));
  sizes.chunk_pairs = p->chunk_pairs;
  sizes.sums_of_pair = p->sums_of_pair;
  sizes.is_partial = p->splits > 1 || p->chunks > 1;
  sizes.strips = p->strips.size(0);
  p->shared = small_m_shared(sizes);
}

double small_m_seconds(const Problem& problem, const Device& device, const SmallMPartition& p,
                       int tokens) {
  const PackedFormat& f = problem.weights;
  const int warps = small_m_warps(tokens);
  const double strips = p.strips.size(0);
  const double pairs = p.pairs.size(0);
  const double blocks_at_once = std::max(
      1.0, static_cast<double>(p.groups) * p.splits * p.token_blocks / device.multiprocessors);
  const double pairs_of_warp = std::ceil(strips * pairs / warps);
  const double runs = p.chunks + strips * p.chunks / warps;
  const double instructions = kWarpInstructions + runs * kRunInstructions +
                              pairs_of_warp * kPairInstructions[tokens == 8    ? 0
                                                                : tokens == 16 ? 1
                                                                               : 2];
  const double issue = instructions * (warps / 4.0) / (device.clock_hz * kIssued);
  const double share = device.bytes_per_second / device.multiprocessors;
  // Loads under way, against what the memory's latency asks for.
  const double ahead = warps * 2.0 * tile_bytes(f.bits) * std::min<double>(p.depth, pairs_of_warp);
  const double slowdown = std::max(1.0, share * kLatency / ahead);
  const double read = strips * pairs * 2 * bytes_of_tile(f) / share * slowdown;
  const double stage = static_cast<double>(std::min<int64_t>(tokens, problem.m)) * pairs * 2 *
                       kTileCols * 2 / (1.3 * share);
  const double end = (p.splits > 1 ? kClusterEnd : 0) + (p.chunks - 1) * kChunk;
  const bool wants_depth = f.decoder == DecoderKind::kIntegers;
  const double depth = (p.depth == kSmallMDepth) == wants_depth ? 0 : kOtherDepth;
  return kLaunch + depth +
         kSmallMSlower * std::ceil(blocks_at_once) * (std::max(issue, read) + stage + end);
}

/// What decides in which order sums are added.
struct SmallMChoice {
  int splits = 1;
  int depth = kSmallMDepth;
  int groups = 0;       // 0: as many as keep the multiprocessors busy
  int chunk_pairs = 0;  // 0: the largest that fits
};

/// Sets the chunks to the largest that fit, if there is one.
bool set_chunk_that_fits(const Problem& problem, const Device& device, int tokens,
                         SmallMPartition* p) {
  const int pairs = p->pairs.size(0);
  for (int chunks = 1; chunks <= pairs; ++chunks) {
    p->chunk_pairs = static_cast<int>(divide_up(pairs, chunks));
    p->chunks = static_cast<int>(divide_up(pairs, p->chunk_pairs));
    set_shared(problem, tokens, p);
    if (p->shared.bytes <= device.shared_bytes) return true;
  }
  return false;
}

/// A block that has not all inputs at once keeps the sums of all its strips. Where they do not fit
/// there are more blocks with fewer strips.
bool set_groups_and_chunks(const Problem& problem, const Device& device, int tokens,
                           const SmallMChoice& choice, SmallMPartition* p) {
  const int64_t strips = problem.weights.strips;
  const int64_t clusters = std::max<int64_t>(
      1, device.multiprocessors / p->splits / std::min<int64_t>(p->token_blocks, 4));
  int64_t groups = choice.groups != 0 ? choice.groups : std::min(clusters, strips);
  for (;;) {
    p->groups = static_cast<int>(groups);
    p->strips = parts_of(strips, groups);
    if (choice.chunk_pairs != 0) {
      p->chunk_pairs = choice.chunk_pairs;
      p->chunks = static_cast<int>(divide_up(p->pairs.size(0), p->chunk_pairs));
      set_shared(problem, tokens, p);
      return p->shared.bytes <= device.shared_bytes;
    }
    if (set_chunk_that_fits(problem, device, tokens, p)) return true;
    if (choice.groups != 0 || groups == strips) return false;
    groups = std::min(2 * groups, strips);
  }
}

/// The plan of a kernel that has this partition, or none if it does not fit.
std::optional<Plan> small_m_plan(const Problem& problem, const Device& device, KernelKind kind,
                                 const SmallMChoice& choice) {
  const PackedFormat& f = problem.weights;
  const int tokens = tokens_of(kind);
  const int64_t pairs = divide_up(f.tiles, 2);
  if (choice.splits > pairs) return std::nullopt;
  Plan plan;
  plan.kernel = kind;
  SmallMPartition& p = plan.small_m;
  p.splits = choice.splits;
  p.splits_log2 = std::countr_zero(static_cast<unsigned>(p.splits));
  p.token_blocks = static_cast<int>(divide_up(problem.m, tokens));
  p.depth = choice.depth;
  p.one_group = pair_is_one_group(f) ? 1 : 0;
  p.pairs = parts_of(pairs, p.splits);
  if (!set_groups_and_chunks(problem, device, tokens, choice, &p)) return std::nullopt;
  const int64_t blocks = int64_t{p.groups} * p.splits * p.token_blocks;
  if (blocks > INT32_MAX) return std::nullopt;
  plan.blocks = static_cast<int>(blocks);
  plan.threads = small_m_warps(tokens) * kLanes;
  plan.cluster = p.splits;
  plan.shared_bytes = p.shared.bytes;
  plan.microseconds = small_m_seconds(problem, device, p, tokens) * 1e6;
  return plan;
}

/// Larger clusters leave multiprocessors idle, whose number in their groups is not divisible by 4.
int largest_cluster(const Device& device) {
  return device.compute_capability >= 90 ? 2 : 1;
}

void add_small_m(std::vector<Plan>& plans, const Problem& problem, const Device& device,
                 KernelKind kind) {
  for (int splits = 1; splits <= largest_cluster(device); splits *= 2) {
    for (const int depth : {kSmallMDepth, kSmallMDepth / 2}) {
      const auto plan = small_m_plan(problem, device, kind, {splits, depth});
      if (plan) plans.push_back(*plan);
    }
  }
}

/// Sums depend on what SmallMChoice has. So that is chosen for the most tokens of `large`, whatever
/// m is, and such that `small`, which is for fewer, has it too.
bool add_invariant(std::vector<Plan>& plans, const Problem& problem, const Device& device,
                   KernelKind small, KernelKind large) {
  Problem most = problem;
  most.m = tokens_of(large);
  std::vector<Plan> models;
  add_small_m(models, most, device, large);
  std::stable_sort(models.begin(), models.end(),
                   [](const Plan& a, const Plan& b) { return a.microseconds < b.microseconds; });
  for (const Plan& model : models) {
    const SmallMPartition& p = model.small_m;
    const SmallMChoice choice = {p.splits, p.depth, p.groups, p.chunk_pairs};
    Problem few = problem;
    few.m = tokens_of(small);
    if (!small_m_plan(few, device, small, choice)) continue;
    const auto plan =
        small_m_plan(problem, device, problem.m <= tokens_of(small) ? small : large, choice);
    if (plan) plans.push_back(*plan);
    return true;
  }
  return false;
}

/// small_m64 for all where small_m16, which has more warps, does not fit.
void add_batch_invariant(std::vector<Plan>& plans, const Problem& problem, const Device& device) {
  if (add_invariant(plans, problem, device, KernelKind::kSmallM8, KernelKind::kSmallM16)) return;
  add_invariant(plans, problem, device, KernelKind::kSmallM64, KernelKind::kSmallM64);
}

/// What the templates of large_m/kernel.cuh say of a kernel.
struct LargeMKernel {
  int slots;  // of weights
  int shared_bytes;
  int blocks;  // that a multiprocessor has
};

/// With as many slots as leave room for the blocks that there should be, or else for one.
template <int kTokens>
LargeMKernel large_m_kernel(const PackedFormat& f, const Device& device) {
  using Shape = LargeMShape<kTokens>;
  constexpr int kReserved = 1024;  // by the system, for each block
  const int stream =
      large_m_stream_bytes(f.bits, f.groups_per_tile, scale_bytes(f.scale_kind), f.zero_bytes);
  LargeMKernel kernel = {};
  for (kernel.blocks = Shape::kBlocks; kernel.blocks >= 1; --kernel.blocks) {
    const int most = (device.shared_bytes + kReserved) / kernel.blocks - kReserved;
    for (kernel.slots = kMostLargeMSlots; kernel.slots >= kLeastLargeMSlots; --kernel.slots) {
      kernel.shared_bytes = large_m_shared<kTokens>(table_of(f), stream, kernel.slots).bytes;
      if (kernel.shared_bytes <= most) return kernel;
    }
  }
  return kernel;  // does not fit
}

LargeMKernel large_m_kernel(const PackedFormat& f, const Device& device, KernelKind kind) {
  if (kind == KernelKind::kLargeM64) return large_m_kernel<64>(f, device);
  if (kind == KernelKind::kLargeM128) return large_m_kernel<128>(f, device);
  return large_m_kernel<256>(f, device);
}

/// Multiprocessors that clusters of `blocks` can have. Larger ones leave some idle, as these are in
/// groups whose sizes are not divisible by 4.
int64_t usable_multiprocessors(const Device& device, int blocks) {
  const int usable = blocks <= 2 ? device.multiprocessors : device.multiprocessors * 9 / 10;
  return std::max(usable / blocks * blocks, blocks);
}

/// Two blocks of a kernel are on a multiprocessor. Clusters of 4 have theirs side by side even if
/// there is room elsewhere.
bool has_neighbours(const Device& device, const Plan& plan, const LargeMKernel& kernel) {
  return kernel.blocks > 1 && (plan.blocks > device.multiprocessors || plan.cluster >= 4);
}

/// Seconds in which each block multiplies 64 inputs.
double large_m_tile_seconds(const PackedFormat& f, const Device& device, const Plan& plan,
                            const LargeMKernel& kernel) {
  const int kind = static_cast<int>(plan.kernel) - static_cast<int>(KernelKind::kLargeM64);
  const double compute =
      has_neighbours(device, plan, kernel) ? kLargeMTileOfTwo : kLargeMTile[kind];
  const double weights = kLargeMRows / 16.0 * bytes_of_tile(f);
  const double activations = tokens_of(plan.kernel) * kTileCols * 2.0 / plan.large_m.cluster;
  const double read = std::max((weights + activations) * plan.blocks / kLargeMBytesPerSecond,
                               weights * device.multiprocessors / device.bytes_per_second);
  return std::max(compute, read) + kLargeMHidden * std::min(compute, read);
}

/// Tiles, or parts of tiles of the same size, that a multiprocessor has.
double large_m_tiles_of_each(const Device& device, const Plan& plan, const LargeMKernel& kernel,
                             int64_t split_items) {
  const LargeMPartition& p = plan.large_m;
  const int64_t at_once = usable_multiprocessors(device, plan.cluster);
  const double whole = static_cast<double>(divide_up(int64_t{p.whole} * plan.cluster, at_once));
  const double parts = static_cast<double>(divide_up(split_items * plan.cluster, at_once));
  const bool is_packed = has_neighbours(device, plan, kernel) && plan.cluster >= 4;
  return whole + std::max(parts, is_packed ? 2.0 : 0.0) / p.splits;
}

double large_m_seconds(const PackedFormat& f, const Device& device, const Plan& plan,
                       const LargeMKernel& kernel, int64_t split_items) {
  const LargeMPartition& p = plan.large_m;
  const double tiles = large_m_tiles_of_each(device, plan, kernel, split_items);
  const double at_once = has_neighbours(device, plan, kernel) ? 2 : 1;
  const double rounds =
      std::ceil((static_cast<double>(p.whole) + static_cast<double>(split_items)) * plan.cluster /
                plan.blocks);
  const double exchange = p.splits > 1 ? kLargeMExchange * tokens_of(plan.kernel) : 0;
  return kLargeMLaunch + kLargeMCluster * std::log2(plan.cluster) +
         tiles * static_cast<double>(f.tiles) * large_m_tile_seconds(f, device, plan, kernel) /
             at_once +
         rounds * kLargeMTileEnd + std::max(1.0, rounds - (p.whole > 0 ? 1 : 0)) * exchange;
}

/// `mixes`: as many tiles are not split as all multiprocessors can have in equal numbers.
std::optional<Plan> large_m_plan(const Problem& problem, const Device& device, KernelKind kind,
                                 int cluster, int splits, bool mixes) {
  const PackedFormat& f = problem.weights;
  const LargeMKernel kernel = large_m_kernel(f, device, kind);
  const int64_t row_blocks = divide_up(f.strips * kStripRows, kLargeMRows);
  const int64_t token_blocks = divide_up(problem.m, tokens_of(kind));
  if (kernel.blocks == 0 || splits > f.tiles || cluster > row_blocks) return std::nullopt;
  Plan plan;
  plan.kernel = kind;
  plan.shared_bytes = kernel.shared_bytes;
  plan.cluster = cluster * splits;
  LargeMPartition& p = plan.large_m;
  p.cluster = cluster;
  p.splits = splits;
  p.row_blocks = static_cast<int>(divide_up(row_blocks, cluster) * cluster);
  p.token_blocks = static_cast<int>(token_blocks);
  p.group = 2048 / tokens_of(kind);
  p.tiles = parts_of(f.tiles, splits);
  p.slots = kernel.slots;
  const int64_t multiprocessors = usable_multiprocessors(device, plan.cluster);
  const int64_t tiles = p.row_blocks / cluster * token_blocks;  // of clusters
  if (mixes) {
    const int64_t at_once = multiprocessors / cluster;
    p.whole = static_cast<int>(tiles / at_once * at_once / splits);
    if (p.whole == 0 || int64_t{p.whole} * splits == tiles) return std::nullopt;
  }
  const int64_t split_items = tiles - int64_t{p.whole} * splits;
  const int64_t resident = kernel.blocks * multiprocessors / plan.cluster;
  plan.blocks = static_cast<int>(std::min(p.whole + split_items, resident)) * plan.cluster;
  plan.threads = 384;
  plan.microseconds = 1e6 * large_m_seconds(f, device, plan, kernel, split_items);
  if (!problem.aligned_x || f.gather_begin != f.bytes) {
    plan.workspace_bytes = problem.m * divide_up(f.cols, 8) * 16;
    plan.microseconds += 2;
  }
  return plan;
}

void add_large_m(std::vector<Plan>& plans, const Problem& problem, const Device& device,
                 KernelKind kind) {
  for (const int cluster : {1, 2}) {
    for (int splits = 1; cluster * splits <= 4; splits *= 2) {
      for (const bool mixes : {false, true}) {
        if (mixes && splits == 1) continue;
        const auto plan = large_m_plan(problem, device, kind, cluster, splits, mixes);
        if (plan) plans.push_back(*plan);
      }
    }
  }
}

std::string shape_of(const Problem& problem) {
  const PackedFormat& f = problem.weights;
  return std::to_string(f.cols) + "x" + std::to_string(f.rows) + " " + to_string(f.source) +
         " m=" + std::to_string(problem.m);
}

/// Why plan_candidates() has none.
Error no_plan(const Problem& problem, const Device& device, const PlanOptions& options) {
  const std::string quoted = "linear: '" + std::string(options.kernel) + "'";
  const auto* const found = std::find(kNames.begin(), kNames.end(), options.kernel);
  if (!options.kernel.empty() && found == kNames.end()) {
    std::string names;
    for (const std::string_view known : kNames) names.append(1, ' ').append(known);
    return {"cuda.kernel",
            "linear: no kernel '" + std::string(options.kernel) + "'; there are" + names};
  }
  const bool is_large_m = !options.kernel.empty() &&
                          static_cast<KernelKind>(found - kNames.begin()) >= KernelKind::kLargeM64;
  if (is_large_m && device.compute_capability != 90) {
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
                             " KiB of shared memory and 2^31 blocks"};
}

}  // namespace

std::string_view name(KernelKind kind) {
  return kNames[static_cast<std::size_t>(kind)];
}

int tokens_of(KernelKind kind) {
  constexpr std::array<int, kKernelKinds> kTokens = {8, 8, 16, 64, 64, 128, 256};
  return kTokens[static_cast<std::size_t>(kind)];
}

std::vector<Plan> plan_candidates(const Problem& problem, const Device& device,
                                  const PlanOptions& options) {
  std::vector<Plan> plans;
  if (options.batch_invariant) {
    add_batch_invariant(plans, problem, device);
    std::erase_if(plans, [&](const Plan& plan) {
      return !options.kernel.empty() && options.kernel != name(plan.kernel);
    });
  }
  for (int i = 0; i < kKernelKinds && !options.batch_invariant; ++i) {
    const KernelKind kind = static_cast<KernelKind>(i);
    if (!options.kernel.empty() && options.kernel != name(kind)) continue;
    if (kind == KernelKind::kGemv) {
      const auto plan = gemv_plan(problem, device);
      if (plan) plans.push_back(*plan);
    } else if (is_small_m(kind)) {
      add_small_m(plans, problem, device, kind);
    } else if (device.compute_capability == 90) {
      add_large_m(plans, problem, device, kind);
    }
  }
  for (Plan& plan : plans) plan.m = problem.m;
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
  std::string text = std::string(name(plan.kernel)) + " " + shape_of(problem) + ": ";
  if (plan.kernel == KernelKind::kGemv) {
    text += std::to_string(plan.blocks) + " blocks, " + std::to_string(plan.gemv.batch) +
            " strips at a time, ";
  } else if (is_small_m(plan.kernel)) {
    text += std::to_string(plan.small_m.groups) + " clusters of " +
            std::to_string(plan.small_m.splits) + ", " + std::to_string(plan.small_m.depth) +
            " pairs ahead, chunks of " +
            std::to_string(int64_t{2} * plan.small_m.chunk_pairs * kTileCols) + " inputs, ";
  } else {
    text += std::to_string(plan.large_m.row_blocks) + " x " +
            std::to_string(plan.large_m.token_blocks) + " tiles, " +
            std::to_string(plan.large_m.cluster) + " that share tokens, " +
            std::to_string(plan.large_m.splits) + " splits" +
            (plan.large_m.whole > 0 ? " after " + std::to_string(plan.large_m.whole) + " whole, "
                                    : ", ");
  }
  const int64_t tenths = std::llround(plan.microseconds * 10);
  return text + std::to_string(plan.shared_bytes / 1024) + " KiB, expected " +
         std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " us";
}

}  // namespace subbyte::cuda
