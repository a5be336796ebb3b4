#include "kernels/cuda/plan_gemv.h"

#include <algorithm>

#include "kernels/cuda/device/shared_sizes.h"
#include "kernels/cuda/plan_sizes.h"

namespace subbyte::cuda {
namespace {

// What an H200 showed (docs/kernels/cuda.md).
constexpr double kFixed = 3.2e-6;           // launch, first loads, last sums
constexpr double kSlower = 1.1;             // than reading alone
constexpr double kPass = 0.4e-6;            // for each time that a warp changes its inputs
constexpr double kInputsPerSecond = 35e9;   // bytes of activations, of one multiprocessor
constexpr double kTableCost = 1.25;         // codebooks, which take more instructions

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
  const double table = f.decoder == DecoderKind::kCodebook ? kTableCost : 1;
  const double passes = static_cast<double>(divide_up(p.segments, kGemvWarps));
  const double batches = static_cast<double>(divide_up(p.strips.size(0), p.batch));
  const double tokens = static_cast<double>(std::min<int64_t>(problem.m, kGemvTokens));
  const double inputs = (tokens - 1) * static_cast<double>(f.cols) * 2 / kInputsPerSecond;
  const double changes = passes > 1 ? passes * batches : 1;
  return kFixed + rounds * (kSlower * table * read + inputs + (changes - 1) * kPass);
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
  const int64_t of_strip = int64_t{p.segments} * tokens * kSumStride * 4;
  p.batch = 0;
  p.shared = gemv_shared(p, table_of(f), tokens);
  p.batch = static_cast<int>(
      std::min<int64_t>((device.shared_bytes - p.shared.bytes) / of_strip, p.strips.size(0)));
  if (p.shared.bytes > device.shared_bytes || p.batch < 1) return std::nullopt;
  p.shared = gemv_shared(p, table_of(f), tokens);
  plan.blocks = static_cast<int>(blocks);
  plan.threads = kGemvWarps * kLanes;
  plan.shared_bytes = p.shared.bytes;
  plan.microseconds = seconds(problem, device, plan) * 1e6;
  return plan;
}

}  // namespace subbyte::cuda
