#include "kernels/cuda/gemv/plan.h"

#include <algorithm>

#include "kernels/cuda/plan_sizes.h"

namespace subbyte::cuda {
namespace {

// What an H200 showed (docs/kernels/cuda.md), in seconds. As for the other kernels, formats that
// take more instructions are not told apart.
constexpr double kFixed = 3.1e-6;            // launch, first loads, last sums
constexpr double kSlower = 1.14;             // than reading alone
constexpr double kPass = 0.8e-6;             // for each time that a warp changes its inputs
constexpr double kPassOfOneBuffer = 0.3e-6;  // more, for each token
constexpr double kBatch = 0.6e-6;
constexpr double kMoreTokens = 0.4e-6;     // than one
constexpr double kInputsPerSecond = 40e9;  // bytes of activations that a multiprocessor gets

/// Blocks of scales that a segment touches, at most.
int blocks_of_segment(const PackedFormat& f) {
  int most = 0;
  for (int64_t tile = 0; tile < f.tiles; tile += kSegmentTiles) {
    const int64_t last = std::min<int64_t>(tile + kSegmentTiles, f.tiles) - 1;
    const int64_t blocks = last / f.tiles_per_block - tile / f.tiles_per_block + 1;
    most = std::max(most, static_cast<int>(blocks));
  }
  return most;
}

void set_slot(const PackedFormat& f, GemvPartition* p) {
  const bool has_zeros = f.decoder == DecoderKind::kIntegers;
  const int block = blocks_of_segment(f) * f.groups_per_tile * kStripRows;
  const bool has_constant_zeros = f.zero_bytes == 0 || is_offset(f.source.zero);
  const int zero_size = has_zeros && has_constant_zeros ? (f.bits == 8 ? 2 : 1) : 0;
  p->one_group = pair_is_one_group(f) ? 1 : 0;
  p->sums_of_pair = !has_zeros ? 0 : p->one_group != 0 ? 1 : 2 * f.groups_per_tile;
  p->block_scales = f.groups_per_tile * kStripRows * scale_bytes(f.scale_kind);
  p->block_zeros = f.groups_per_tile * kStripRows * f.zero_bytes;
  p->strip_codes = static_cast<uint32_t>(f.tiles) * tile_bytes(f.bits);
  p->strip_scales = static_cast<uint32_t>(f.blocks) * p->block_scales;
  p->strip_zeros = static_cast<uint32_t>(f.blocks) * p->block_zeros;
  p->scales = block * scale_bytes(f.scale_kind);
  p->zeros = block * f.zero_bytes;
  p->slot_bytes = kSegmentTiles * tile_bytes(f.bits) + p->scales + p->zeros + block * zero_size;
  p->ring_bytes = kGemvSlots * p->slot_bytes;
}

double seconds(const Problem& problem, const Device& device, const Plan& plan) {
  const PackedFormat& f = problem.weights;
  const GemvPartition& p = plan.gemv;
  const double share = device.bytes_per_second / device.multiprocessors;
  const double strips = p.strips.size(0);
  const double rounds = static_cast<double>(divide_up(plan.blocks, device.multiprocessors));
  const double read = strips * static_cast<double>(f.tiles) * bytes_of_tile(f) / share;
  const double tokens = static_cast<double>(std::min<int64_t>(problem.m, kGemvTokens));
  const double inputs = (tokens - 1) * static_cast<double>(f.cols) * 2 / kInputsPerSecond +
                        (tokens > 1 ? kMoreTokens : 0);
  const double passes = static_cast<double>(divide_up(p.segments, kGemvWarps));
  const double batches = static_cast<double>(divide_up(p.strips.size(0), p.batch));
  const double change = kPass + (p.buffers == 1 ? kPassOfOneBuffer * tokens : 0);
  const double changes = passes > 1 ? passes * batches - 1 : 0;
  return kFixed + rounds * (kSlower * read + inputs + changes * change + (batches - 1) * kBatch);
}

/// With the inputs of all segments at once, if that leaves room for the sums of all strips.
bool set_shared(const Problem& problem, const Device& device, int tokens, GemvPartition* p) {
  const int table = table_of(problem.weights);
  const int strips = p->strips.size(0);
  for (const int buffers : {static_cast<int>(divide_up(p->segments, kGemvWarps)), 1}) {
    p->buffers = buffers;
    p->batch = strips;
    p->shared = gemv_shared(*p, table, tokens);
    if (p->shared.bytes <= device.shared_bytes) return true;
  }
  const int of_strip = p->segments * tokens * kSumStride * 4;
  p->batch = (device.shared_bytes - p->shared.sums) / of_strip;
  p->shared = gemv_shared(*p, table, tokens);
  return p->shared.sums < device.shared_bytes && p->batch >= 1;
}

}  // namespace

std::optional<Plan> gemv_plan(const Problem& problem, const Device& device) {
  const PackedFormat& f = problem.weights;
  const int tokens = static_cast<int>(std::min<int64_t>(problem.m, kGemvTokens));
  Plan plan;
  plan.kernel = KernelKind::kGemv;
  GemvPartition& p = plan.gemv;
  p.token_blocks = static_cast<int>(divide_up(problem.m, kGemvTokens));
  p.groups = static_cast<int>(std::min<int64_t>(device.multiprocessors, f.strips));
  p.segments = static_cast<int>(divide_up(f.tiles, kSegmentTiles));
  p.strips = parts_of(f.strips, p.groups);
  set_slot(f, &p);
  const int64_t blocks = int64_t{p.groups} * p.token_blocks;
  if (blocks > INT32_MAX) return std::nullopt;
  if (!set_shared(problem, device, tokens, &p)) return std::nullopt;
  plan.blocks = static_cast<int>(blocks);
  plan.threads = kGemvWarps * kLanes;
  plan.shared_bytes = p.shared.bytes;
  plan.microseconds = seconds(problem, device, plan) * 1e6;
  return plan;
}

}  // namespace subbyte::cuda
