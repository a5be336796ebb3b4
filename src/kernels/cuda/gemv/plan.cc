#include "kernels/cuda/gemv/plan.h"

#include <algorithm>

namespace subbyte::cuda {
namespace {

/// Scale blocks that a segment touches, at most.
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
  const int zero_size = zeros_beside(f) && has_constant_zeros ? (f.bits == 8 ? 2 : 1) : 0;
  p->one_group = pair_is_one_group(f) ? 1 : 0;
  p->pair_input_sums = !has_zeros ? 0 : p->one_group != 0 ? 1 : 2 * f.groups_per_tile;
  p->block_scales = scale_block_bytes(f);
  p->block_zeros = f.groups_per_tile * kStripRows * f.zero_bytes;
  p->strip_codes = static_cast<uint32_t>(f.tiles) * tile_bytes(f.bits);
  p->strip_scales = static_cast<uint32_t>(f.blocks) * p->block_scales;
  p->strip_zeros = static_cast<uint32_t>(f.blocks) * p->block_zeros;
  p->segment_scales = blocks_of_segment(f) * scale_block_bytes(f);
  p->segment_zeros = block * f.zero_bytes;
  p->slot_bytes =
      kSegmentTiles * tile_bytes(f.bits) + p->segment_scales + p->segment_zeros + block * zero_size;
}

/// Formats that take more instructions are not told apart.
double seconds(const Planning& planning, const Plan& plan) {
  const auto& [problem, device, all_costs] = planning;
  const CostModel::Gemv& cost = all_costs.gemv;
  const PackedFormat& f = problem.weights;
  const GemvPartition& p = plan.gemv;
  const double share = device.bytes_per_second / device.multiprocessors;
  const double strips = p.strips.size(0);
  const double waves = static_cast<double>(divide_up(plan.ctas, device.multiprocessors));
  const double read = strips * static_cast<double>(f.tiles) * bytes_of_tile(f) / share;
  const double tokens = static_cast<double>(std::min<int64_t>(problem.m, kGemvTokens));
  const double inputs = (tokens - 1) * static_cast<double>(f.cols) * 2 / cost.input_rate +
                        (tokens > 1 ? cost.several_tokens : 0);
  const double passes = static_cast<double>(divide_up(p.segments, kGemvWarps));
  const double batches = static_cast<double>(divide_up(p.strips.size(0), p.batch));
  const double change =
      cost.segment_change + (p.x_buffers == 1 ? cost.segment_change_per_token * tokens : 0);
  const double changes = passes > 1 ? passes * batches - 1 : 0;
  const double all = cost.fixed + waves * (cost.over_reading * read + inputs + changes * change +
                                           (batches - 1) * cost.batch);
  return p.token_tiles > 1 ? all * (1 + cost.several_tiles) : all;
}

bool may_have_byte_table(const PackedFormat& f) {
  return f.decoder == DecoderKind::kVectors || (f.decoder == DecoderKind::kCodebook && f.bits != 3);
}

bool may_be_diagonal(const Problem& problem) {
  const PackedFormat& f = problem.weights;
  return problem.m == 1 && f.groups_per_tile == 2 && f.decoder != DecoderKind::kIntegers;
}

/// With the inputs of all segments at once, if that leaves room for the partials of all strips.
bool set_shared(const Planning& planning, int tokens, GemvPartition* p) {
  const Device& device = planning.device;
  const PackedFormat& f = planning.problem.weights;
  const int table = p->has_byte_table != 0 ? kByteTableBytes : table_of(f);
  const int strips = p->strips.size(0);
  p->ring_bytes = ((p->is_diagonal != 0 ? kDiagonalDepth : kGemvDepth) + 1) * p->slot_bytes;
  for (const int buffers : {static_cast<int>(divide_up(p->segments, kGemvWarps)), 1}) {
    p->x_buffers = buffers;
    p->batch = strips;
    p->shared = gemv_shared(*p, table, tokens);
    if (p->shared.bytes <= device.shared_bytes) return true;
  }
  const int of_strip = p->segments * tokens * kPartialStride * 4;
  p->batch = (device.shared_bytes - p->shared.partials) / of_strip;
  p->shared = gemv_shared(*p, table, tokens);
  return p->shared.partials < device.shared_bytes && p->batch >= 1;
}

}  // namespace

void add_gemv_plans(std::vector<Plan>& plans, const Planning& planning) {
  const PackedFormat& f = planning.problem.weights;
  const int64_t m = planning.problem.m;
  const int tokens = static_cast<int>(std::min<int64_t>(m, kGemvTokens));
  Plan plan;
  plan.kernel = KernelKind::kGemv;
  GemvPartition& p = plan.gemv;
  p.token_tiles = static_cast<int>(divide_up(m, kGemvTokens));
  p.strip_ctas = static_cast<int>(std::min<int64_t>(planning.device.multiprocessors, f.strips));
  p.segments = static_cast<int>(divide_up(f.tiles, kSegmentTiles));
  p.strips = parts_of(f.strips, p.strip_ctas);
  set_slot(f, &p);
  const int64_t ctas = int64_t{p.strip_ctas} * p.token_tiles;
  if (ctas > INT32_MAX) return;
  p.is_diagonal = may_be_diagonal(planning.problem) ? 1 : 0;
  p.has_byte_table = p.is_diagonal != 0 && may_have_byte_table(f) ? 1 : 0;
  while (!set_shared(planning, tokens, &p)) {
    if (p.is_diagonal == 0) return;
    // Without that table, which only codebooks of 5 bits can do beside diagonal inputs.
    if (p.has_byte_table == 0 || f.bits != 5) p.is_diagonal = 0;
    p.has_byte_table = 0;
  }
  plan.ctas = static_cast<int>(ctas);
  plan.threads = kGemvWarps * kLanes;
  plan.shared_bytes = p.shared.bytes;
  plan.microseconds = seconds(planning, plan) * 1e6;
  plans.push_back(plan);
}

std::string describe_gemv(const Plan& plan) {
  return std::to_string(plan.ctas) + " CTAs, " + std::to_string(plan.gemv.batch) +
         " strips at a time";
}

}  // namespace subbyte::cuda
