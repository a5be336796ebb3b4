#pragma once
// How small_m divides the work, and what lies where in shared memory. Host and device compute the
// same.

#include <cstdint>

#include "kernels/cuda/common/arguments.h"

namespace subbyte::cuda {

/// Where things are in the shared memory of a block of small_m/kernel.cuh, in bytes.
struct SmallMShared {
  int scale_values;  // the table is before them
  int barrier;       // of the activations, 16 bytes
  int rings;         // of all warps
  int x;             // [x_rows][chunk_pairs * 128 + 8] numbers
  int x_stride;      // bytes
  int x_sums;        // [pair][sums_of_pair][tokens]
  int pieces;        // [heads, tails][warp][x_rows][kSumStride]: of strips that warps share
  int partial;       // [strip of the block][x_rows][kSumStride], instead of tails
  int bytes;
};

/// How small_m/kernel.cuh divides the work. Tiles come in pairs, of the same strip.
struct SmallMPartition {
  int32_t splits;  // blocks of a cluster, each with its part of the inputs: a power of two
  int32_t splits_log2;
  int32_t groups;  // clusters, each with its part of the strips
  int32_t token_blocks;
  int32_t chunk_pairs;      // inputs in shared memory at a time, in pairs of tiles
  int32_t chunks;           // that a block has, at most
  int32_t depth;            // pairs that a warp has under way: kSmallMDepth or half of it
  int32_t one_group;        // the two tiles of a pair have the same scales
  int32_t pairs_per_block;  // 1: each pair has its own block of scales, or two; else it may not
  int32_t sums_of_pair;     // groups of a pair whose inputs are summed, or 0
  int32_t pair_scales;      // bytes
  int32_t pair_zeros;       // bytes that are copied, of zero points or offsets
  int32_t slot_bytes;       // of a pair: codes, scales, offsets, zero points
  int32_t ring_bytes;       // of a warp: `depth` slots
  Parts strips;             // by groups
  Parts pairs;              // of a strip, by splits
  SmallMShared shared;
};

/// With 64 tokens a thread needs twice the registers.
SUBBYTE_DEVICE constexpr int small_m_warps(int tokens) {
  return tokens <= 16 ? 16 : 8;
}
/// Pairs of tiles that a warp has under way at most. More would only wait in line, and the warp
/// with them.
inline constexpr int kSmallMDepth = 4;

struct SmallMSizes {
  int table;
  int ring;  // of a warp
  int tokens;
  int x_rows;  // tokens that are there
  int chunk_pairs;
  int sums_of_pair;  // groups of a pair whose inputs are summed, or 0
  bool is_partial;   // partial sums of all strips are kept
  int strips;
};

constexpr SmallMShared small_m_shared(const SmallMSizes& sizes) {
  SmallMShared s = {};
  s.scale_values = sizes.table;
  s.barrier = s.scale_values + kScaleValuesBytes;
  s.rings = s.barrier + 16;
  s.x = s.rings + sizes.ring * small_m_warps(sizes.tokens);
  s.x_stride = (sizes.chunk_pairs * 2 * kTileCols + 8) * 2;
  s.x_sums = s.x + sizes.x_rows * s.x_stride;
  s.pieces = s.x_sums + sizes.chunk_pairs * sizes.sums_of_pair * sizes.tokens * 4;
  const int sums = sizes.x_rows * kSumStride * 4;
  s.partial = s.pieces + small_m_warps(sizes.tokens) * sums;  // where tails would be
  s.bytes = s.partial + (sizes.is_partial ? sizes.strips : small_m_warps(sizes.tokens)) * sums;
  return s;
}

}  // namespace subbyte::cuda
