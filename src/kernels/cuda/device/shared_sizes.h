#pragma once
// How the kernels lay out the shared memory of a block. Host and device compute the same.

#include <cstdint>

#include "kernels/cuda/tile_order.h"

namespace subbyte::cuda {

/// One warp's way through a strip (weight_stream.cuh): the codes of `depth` tiles; their scales and
/// zero points twice as they are in memory, and as floats and constants of the decoder.
SUBBYTE_DEVICE constexpr int stream_bytes(int depth, int bits, int groups, int scale_size,
                                          int zero_size, bool has_zeros) {
  return depth * (tile_bytes(bits) +
                  groups * kStripRows * (2 * (scale_size + zero_size) + (has_zeros ? 8 : 4)));
}

/// Values of the codes of a one-byte scale.
inline constexpr int kScaleValuesBytes = 256 * 4;

// --- narrow.cuh ---

/// With 64 tokens a thread needs twice the registers.
SUBBYTE_DEVICE constexpr int narrow_warps(int tokens) {
  return tokens <= 16 ? 16 : 8;
}
/// Sums of one round are added while the next one begins, if there is memory for both.
SUBBYTE_DEVICE constexpr int narrow_round_buffers(int tokens) {
  return tokens == 8 ? 2 : 1;
}
/// Tiles of codes that a warp has under way: 4 KiB, or 8 of 8 bits.
SUBBYTE_DEVICE constexpr int narrow_depth(int bits) {
  return bits <= 2 ? 16 : 8;
}

/// Floats from one token to the next in the sums of a strip: 16 rows, and 4 so that a warp's
/// stores go to different banks.
inline constexpr int kSumStride = 20;

/// Offsets in bytes.
struct NarrowShared {
  int scale_values;  // the table is before them
  int streams;       // of all warps
  int x;             // [x_rows + 1][chunk_tiles * 64 + 8] numbers, the last row zeros
  int x_stride;      // bytes
  int sums;          // [round buffer][warp][token][kSumStride]
  int partial;       // [strip of the block][token][kSumStride]
  int bytes;
};

/// `table` and `stream` (of one warp) are bytes; x_rows <= tokens are there.
SUBBYTE_DEVICE constexpr NarrowShared narrow_shared(int table, int stream, int tokens, int x_rows,
                                                    int chunk_tiles, int partial_strips) {
  NarrowShared s = {};
  s.scale_values = table;
  s.streams = s.scale_values + kScaleValuesBytes;
  s.x = s.streams + stream * narrow_warps(tokens);
  s.x_stride = (chunk_tiles * kTileCols + 8) * 2;
  s.sums = s.x + (x_rows + 1) * s.x_stride;
  const int sums = tokens * kSumStride * 4;
  s.partial = s.sums + narrow_round_buffers(tokens) * narrow_warps(tokens) * sums;
  s.bytes = s.partial + partial_strips * sums;
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
