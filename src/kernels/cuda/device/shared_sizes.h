#pragma once
// How the kernels lay out the shared memory of a block. Host and device compute the same.

#include <cstdint>

#include "kernels/cuda/device/arguments.h"

namespace subbyte::cuda {

/// Values of the codes of a one-byte scale.
inline constexpr int kScaleValuesBytes = 256 * 4;

// --- narrow.cuh ---

/// With 64 tokens a thread needs twice the registers.
SUBBYTE_DEVICE constexpr int narrow_warps(int tokens) {
  return tokens <= 16 ? 16 : 8;
}
/// Pairs of tiles that a warp has under way at most. More would only wait in line, and the warp
/// with them.
inline constexpr int kNarrowDepth = 4;

/// Floats from one token to the next in the sums of a strip: 16 rows, and 4 so that a warp's
/// stores go to different banks.
inline constexpr int kSumStride = 20;

struct NarrowSizes {
  int table;
  int ring;  // of a warp
  int tokens;
  int x_rows;  // tokens that are there
  int chunk_pairs;
  int sums_of_pair;  // groups of a pair whose inputs are summed, or 0
  bool is_partial;   // partial sums of all strips are kept
  int strips;
};

constexpr NarrowShared narrow_shared(const NarrowSizes& sizes) {
  NarrowShared s = {};
  s.scale_values = sizes.table;
  s.barrier = s.scale_values + kScaleValuesBytes;
  s.rings = s.barrier + 16;
  s.x = s.rings + sizes.ring * narrow_warps(sizes.tokens);
  s.x_stride = (sizes.chunk_pairs * 2 * kTileCols + 8) * 2;
  s.x_sums = s.x + sizes.x_rows * s.x_stride;
  s.pieces = s.x_sums + sizes.chunk_pairs * sizes.sums_of_pair * sizes.tokens * 4;
  const int sums = sizes.x_rows * kSumStride * 4;
  s.partial = s.pieces + narrow_warps(sizes.tokens) * sums;  // where tails would be
  s.bytes = s.partial + (sizes.is_partial ? sizes.strips : narrow_warps(sizes.tokens)) * sums;
  return s;
}

// --- gemv.cuh ---

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

// --- wide.cuh ---

/// Weights are copied that many tiles at a time.
inline constexpr int kWideBatch = 4;
/// Batches that are in shared memory at a time.
inline constexpr int kMostWideSlots = 4;
inline constexpr int kLeastWideSlots = 2;

/// A batch of one strip (wide_weights.cuh): codes, scales and zero points as they are in memory.
SUBBYTE_DEVICE constexpr int wide_stream_bytes(int bits, int groups, int scale_size,
                                               int zero_size) {
  return kWideBatch * (tile_bytes(bits) + groups * kStripRows * (scale_size + zero_size));
}

/// Outputs of a block, floats from one token to the next of the 64 of a warpgroup where results are
/// staged.
inline constexpr int kWideRows = 128;
inline constexpr int kWideStagedStride = 64 + 4;

template <int kTokens>
struct WideShape {
  static constexpr int kTileBytes = kTokens * kTileCols * 2;
  static constexpr int kBlocks = kTokens == 64 ? 2 : 1;  // that a multiprocessor is to have
  static constexpr int kStages = kTokens == 64 ? 5 : kTokens == 128 ? 8 : 4;
  static constexpr int kRingBytes = kStages * kTileBytes;
  static constexpr int kStagedTokens = kTokens == 64 ? 16 : 32;
  static constexpr int kStagedBytes = 2 * kStagedTokens * kWideStagedStride * 4;
  // Blocks that share outputs put their sums where the ring was.
  static_assert(kWideRows * kTokens * 4 <= kRingBytes);
};

/// Offsets in bytes, after alignment to 1024. The ring of activations is before all.
struct WideShared {
  int barriers;  // full and empty of the ring's stages, then of the slots of weights
  int staged;
  int table;
  int scale_values;
  int weights;  // [slots][8] streams
  int bytes;
};

/// `table` and `stream` (a batch of one strip) are bytes.
template <int kTokens>
SUBBYTE_DEVICE constexpr WideShared wide_shared(int table, int stream, int slots) {
  using Shape = WideShape<kTokens>;
  WideShared s = {};
  s.barriers = Shape::kRingBytes;
  s.staged = s.barriers + (Shape::kStages + kMostWideSlots) * 16;
  s.table = s.staged + Shape::kStagedBytes;
  s.scale_values = s.table + table;
  s.weights = s.scale_values + kScaleValuesBytes;
  s.bytes = s.weights + slots * (kWideRows / kStripRows) * stream + 1024;
  return s;
}

}  // namespace subbyte::cuda
