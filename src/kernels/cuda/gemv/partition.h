#pragma once
// gemv: how the work is divided, and where things are in shared memory. Host and device compute the
// same.

#include <cstdint>

#include "kernels/cuda/common/arguments.h"

namespace subbyte::cuda {

inline constexpr int kGemvWarps = 16;
inline constexpr int kGemvTokens = 8;
/// Tiles of a strip that a warp multiplies at a time.
inline constexpr int kSegmentTiles = 4;
inline constexpr int kSegmentCols = kSegmentTiles * kTileCols;
/// Segments that a warp has in flight; where inputs are diagonal, as those of more warps would wait
/// for each other. Slots of the ring are one more, which is read (cuda_decisions.md).
inline constexpr int kGemvDepth = 2;
inline constexpr int kDiagonalDepth = 1;
/// Bytes from one token to the next in a warp's inputs: 16 more than the inputs take, so that
/// neighbours lie in different banks.
inline constexpr int kGemvInputStride = kSegmentCols * 2 + 16;

/// Tables of byte_table.cuh: bytes from the row of a byte of codes to the next, of 256; the same,
/// as a power of two, of a pair of codes of 5 bits, of 1,024; and of a whole table.
inline constexpr int kByteTableRow = 256;
inline constexpr int kPairTableRowBits = 6;
inline constexpr int kByteTableBytes = 1 << 16;

/// Offsets in the shared memory of a CTA, in bytes. The table of a codebook comes first.
struct GemvShared {
  int scale_values;
  int rings;     // of all warps
  int x;         // of each warp: [x_buffers][tokens][kGemvInputStride]
  int x_sums;    // of each warp: [2][pair_input_sums][kGemvTokens]
  int partials;  // [segment][strip of the batch][token][kPartialStride]
  int bytes;
};

/// Segments are four tiles of a strip.
struct GemvPartition {
  int32_t strip_ctas;       // CTAs that divide the strips among them
  int32_t token_tiles;      // tiles of kGemvTokens tokens; strip_ctas CTAs for each
  int32_t segments;         // of a strip
  int32_t batch;            // strips whose partials are in shared memory at a time
  int32_t one_group;        // the two tiles of a pair have the same scales
  int32_t is_diagonal;      // one token, groups of 32 inputs without zero points (diagonal.cuh)
  int32_t has_byte_table;   // beside that, where the decoder has one (byte_table.cuh)
  int32_t pair_input_sums;  // groups of a pair whose inputs are summed, or 0
  int32_t x_buffers;        // of each warp, for the inputs of its segments: all, or one
  uint32_t strip_codes;     // bytes
  uint32_t strip_scales;
  uint32_t strip_zeros;
  uint32_t block_scales;   // bytes of a scale block
  uint32_t block_zeros;    // of its zero points or offsets; 0: there are none
  int32_t segment_scales;  // bytes, at most
  int32_t segment_zeros;   // bytes of zero points or offsets that are copied, at most
  int32_t slot_bytes;      // of a segment: codes, scales, offsets, zero points
  int32_t ring_bytes;      // of a warp: a slot more than are in flight
  Parts strips;            // by strip_ctas
  GemvShared shared;
};

/// `table` is bytes, of p.batch strips and `tokens` tokens.
constexpr GemvShared gemv_shared(const GemvPartition& p, int table, int tokens) {
  GemvShared s = {};
  s.scale_values = table;
  s.rings = s.scale_values + kScaleValuesBytes;
  s.x = s.rings + kGemvWarps * p.ring_bytes;
  s.x_sums = s.x + kGemvWarps * p.x_buffers * tokens * kGemvInputStride;
  s.partials = s.x_sums + kGemvWarps * 2 * p.pair_input_sums * kGemvTokens * 4;
  s.bytes = s.partials + p.segments * p.batch * tokens * kPartialStride * 4;
  return s;
}

}  // namespace subbyte::cuda
