#pragma once
// small_m: how the work is divided, and where things are in shared memory. Host and device compute
// the same.

#include <cstdint>

#include "kernels/cuda/common/arguments.h"

namespace subbyte::cuda {

/// With 64 tokens a thread needs twice the registers.
SUBBYTE_DEVICE constexpr int small_m_warps(int tokens) {
  return tokens <= 16 ? 16 : 8;
}

/// Pairs of tiles that a warp has in flight at most. With eight the warps of a CTA wait longer for
/// their first (cuda_decisions.md).
inline constexpr int kSmallMDepth = 4;

/// Offsets in the shared memory of a CTA, in bytes. The table of a codebook comes first.
struct SmallMShared {
  int scale_values;
  int x_barrier;      // mbarrier of the activations, 16 bytes
  int rings;          // of all warps
  int x;              // [x_rows][chunk_pairs * 128 + 8] numbers
  int x_stride;       // bytes
  int x_sums;         // [pair][pair_input_sums][tokens]
  int warp_partials;  // [heads, tails][warp][x_rows][kPartialStride], of strips that warps share
  int cta_partials;   // [strip of the CTA][x_rows][kPartialStride], in the place of the tails
  int bytes;
};

/// Tiles come in pairs, of the same strip.
struct SmallMPartition {
  int32_t splits;  // split-K: CTAs of a cluster, each with its part of the inputs; a power of two
  int32_t splits_log2;
  int32_t clusters;         // that divide the strips among them
  int32_t token_tiles;      // `clusters` clusters for each
  int32_t chunk_pairs;      // inputs in shared memory at a time, in pairs of tiles
  int32_t chunks;           // that a CTA has, at most
  int32_t depth;            // slots of a warp's ring: kSmallMDepth, half of it or 1
  int32_t one_group;        // the two tiles of a pair have the same scales
  int32_t pairs_per_block;  // 1: each pair has its own scale block, or two; else it may not
  int32_t pair_input_sums;  // groups of a pair whose inputs are summed, or 0
  int32_t pair_scales;      // bytes
  int32_t pair_zeros;       // bytes that are copied, of zero points or offsets
  int32_t slot_bytes;       // of a pair: codes, scales, offsets, zero points
  int32_t ring_bytes;       // of a warp: `depth` slots
  Parts strips;             // by clusters
  Parts pairs;              // of a strip, by splits
  SmallMShared shared;
};

struct SmallMSizes {
  int table;
  int ring;  // of a warp
  int tokens;
  int x_rows;  // tokens that are there
  int chunk_pairs;
  int pair_input_sums;
  bool keeps_partials;  // of all strips, from chunk to chunk and for the rest of the cluster
  int strips;
};

constexpr SmallMShared small_m_shared(const SmallMSizes& sizes) {
  const int warps = small_m_warps(sizes.tokens);
  SmallMShared s = {};
  s.scale_values = sizes.table;
  s.x_barrier = s.scale_values + kScaleValuesBytes;
  s.rings = s.x_barrier + 16;
  s.x = s.rings + sizes.ring * warps;
  s.x_stride = (sizes.chunk_pairs * 2 * kTileCols + 8) * 2;
  s.x_sums = s.x + sizes.x_rows * s.x_stride;
  s.warp_partials = s.x_sums + sizes.chunk_pairs * sizes.pair_input_sums * sizes.tokens * 4;
  const int partial = sizes.x_rows * kPartialStride * 4;
  s.cta_partials = s.warp_partials + warps * partial;
  s.bytes = s.cta_partials + (sizes.keeps_partials ? sizes.strips : warps) * partial;
  return s;
}

}  // namespace subbyte::cuda
