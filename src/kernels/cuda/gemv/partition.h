#pragma once
// How gemv divides the work, and what lies where in shared memory. Host and device compute the
// same.

#include <cstdint>

#include "kernels/cuda/common/arguments.h"

namespace subbyte::cuda {

/// Where things are in the shared memory of a block of gemv/kernel.cuh, in bytes.
struct GemvShared {
  int scale_values;  // the table is before them
  int rings;         // of all warps
  int x;             // of each warp: [buffers][tokens][kGemvInputStride]
  int x_sums;        // of each warp: [2][sums_of_pair][kGemvTokens]
  int sums;          // [segment][strip of the batch][token][kSumStride]
  int bytes;
};

/// How gemv/kernel.cuh divides the work. Segments are four tiles of a strip.
struct GemvPartition {
  int32_t groups;  // blocks, each with its part of the strips
  int32_t token_blocks;
  int32_t segments;
  int32_t batch;         // strips whose sums are in shared memory at a time
  int32_t one_group;     // the two tiles of a pair have the same scales
  int32_t sums_of_pair;  // groups of a pair whose inputs are summed, or 0
  int32_t buffers;       // of each warp, for the inputs of its segments: all, or one
  uint32_t strip_codes;  // bytes
  uint32_t strip_scales;
  uint32_t strip_zeros;
  uint32_t block_scales;  // bytes of a block of scales
  uint32_t block_zeros;   // of zero points or offsets; 0: there are none
  int32_t scales;         // bytes of a segment's, at most
  int32_t zeros;          // bytes of a segment's zero points or offsets that are copied, at most
  int32_t slot_bytes;     // of a segment: codes, scales, offsets, zero points
  int32_t ring_bytes;     // of a warp: kGemvSlots slots
  Parts strips;           // by groups
  GemvShared shared;
};

inline constexpr int kGemvWarps = 16;
inline constexpr int kGemvTokens = 8;
/// What a warp multiplies at a time, of a strip.
inline constexpr int kSegmentTiles = 4;
inline constexpr int kSegmentCols = kSegmentTiles * kTileCols;
/// Segments that a warp has under way.
inline constexpr int kGemvDepth = 2;
/// Of its ring: one more is read.
inline constexpr int kGemvSlots = kGemvDepth + 1;
/// Bytes from one token to the next in a warp's inputs: 16 more, so that neighbours lie in other
/// banks.
inline constexpr int kGemvInputStride = kSegmentCols * 2 + 16;

/// `table` is bytes, of `batch` strips and `tokens` tokens.
constexpr GemvShared gemv_shared(const GemvPartition& p, int table, int tokens) {
  GemvShared s = {};
  s.scale_values = table;
  s.rings = s.scale_values + kScaleValuesBytes;
  s.x = s.rings + kGemvWarps * p.ring_bytes;
  s.x_sums = s.x + kGemvWarps * p.buffers * tokens * kGemvInputStride;
  s.sums = s.x_sums + kGemvWarps * 2 * p.sums_of_pair * kGemvTokens * 4;
  s.bytes = s.sums + p.segments * p.batch * tokens * kSumStride * 4;
  return s;
}

}  // namespace subbyte::cuda
