#pragma once
// How the kernels lay out the shared memory of a block. Host and device compute the same.

#include <cstdint>

#include "kernels/cuda/device/arguments.h"

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
/// Pairs of tiles that a warp has under way at most. More would only wait in line, and the warp with
/// them.
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
  int sums_of_pair;    // groups of a pair whose inputs are summed, or 0
  bool is_partial;     // partial sums of all strips are kept
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

// --- wide.cuh ---

template <int kTokens, int kStrips>
struct WideShape {
  static constexpr int kRows = 2 * 64 * kStrips;
  static constexpr int kTileBytes = kTokens * kTileCols * 2;
  static constexpr int kBlocks = kTokens == 64 ? 2 : 1;  // that a multiprocessor is to have
  static constexpr int kStages = kTokens == 64 ? 5 : kStrips == 1 ? 8 : 6;
  static constexpr int kDepth = 8;  // tiles of codes ahead
  static constexpr int kStagedTokens = 16;
  static constexpr int kStagedStride = 64 * kStrips + 4;  // floats
  static constexpr int kStagedBytes = 2 * kStagedTokens * kStagedStride * 4;
};

/// Offsets in bytes, after alignment to 1024. The ring of activations is before all.
struct WideShared {
  int barriers;
  int staged;
  int table;
  int scale_values;
  int streams;
  int bytes;
};

/// `table` and `stream` (of one strip) are bytes.
template <int kTokens, int kStrips>
SUBBYTE_DEVICE constexpr WideShared wide_shared(int table, int stream) {
  using Shape = WideShape<kTokens, kStrips>;
  WideShared s = {};
  s.barriers = Shape::kStages * Shape::kTileBytes;
  s.staged = s.barriers + Shape::kStages * 16;
  s.table = s.staged + Shape::kStagedBytes;
  s.scale_values = s.table + table;
  s.streams = s.scale_values + kScaleValuesBytes;
  s.bytes = s.streams + stream * 8 * kStrips + 1024;
  return s;
}

}  // namespace subbyte::cuda
