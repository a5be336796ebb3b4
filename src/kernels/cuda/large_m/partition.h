#pragma once
// How large_m divides the work, and what lies where in shared memory. Host and device compute the
// same.

#include <cstdint>

#include "kernels/cuda/common/arguments.h"

namespace subbyte::cuda {

/// How large_m/kernel.cuh divides the work. A cluster of the GPU has cluster * splits blocks, at
/// most 8: block part * cluster + row.
struct LargeMPartition {
  int32_t cluster;     // blocks, 1 or 2, that share tokens
  int32_t splits;      // blocks, each with its part of the inputs, that share outputs: 1, 2 or 4
  int32_t whole;       // times that a cluster first takes `splits` tiles, which are not split
  int32_t row_blocks;  // a multiple of `cluster`
  int32_t token_blocks;
  int32_t group;  // token blocks that are neighbours in time, to share what is in L2
  Parts tiles;    // by splits, none of them empty
  int32_t slots;  // of weights in shared memory
};

/// Weights are copied that many tiles at a time.
inline constexpr int kLargeMBatch = 4;
/// Batches that are in shared memory at a time.
inline constexpr int kMostLargeMSlots = 4;
inline constexpr int kLeastLargeMSlots = 2;

/// A batch of one strip (large_m/weights.cuh): codes, scales and zero points as they are in memory.
SUBBYTE_DEVICE constexpr int large_m_stream_bytes(int bits, int groups, int scale_size,
                                                  int zero_size) {
  return kLargeMBatch * (tile_bytes(bits) + groups * kStripRows * (scale_size + zero_size));
}

/// Outputs of a block, floats from one token to the next of the 64 of a warpgroup where results are
/// staged.
inline constexpr int kLargeMRows = 128;
inline constexpr int kLargeMStagedStride = 64 + 4;

template <int kTokens>
struct LargeMShape {
  static constexpr int kTileBytes = kTokens * kTileCols * 2;
  static constexpr int kBlocks = kTokens == 64 ? 2 : 1;  // that a multiprocessor is to have
  static constexpr int kStages = kTokens == 64 ? 5 : kTokens == 128 ? 8 : 4;
  static constexpr int kRingBytes = kStages * kTileBytes;
  static constexpr int kStagedTokens = kTokens == 64 ? 16 : 32;
  static constexpr int kStagedBytes = 2 * kStagedTokens * kLargeMStagedStride * 4;
  // Blocks that share outputs put their sums where the ring was.
  static_assert(kLargeMRows * kTokens * 4 <= kRingBytes);
};

/// Offsets in bytes, after alignment to 1024. The ring of activations is before all.
struct LargeMShared {
  int barriers;  // full and empty of the ring's stages, then of the slots of weights
  int staged;
  int table;
  int scale_values;
  int weights;  // [slots][8] streams
  int bytes;
};

/// `table` and `stream` (a batch of one strip) are bytes.
template <int kTokens>
SUBBYTE_DEVICE constexpr LargeMShared large_m_shared(int table, int stream, int slots) {
  using Shape = LargeMShape<kTokens>;
  LargeMShared s = {};
  s.barriers = Shape::kRingBytes;
  s.staged = s.barriers + (Shape::kStages + kMostLargeMSlots) * 16;
  s.table = s.staged + Shape::kStagedBytes;
  s.scale_values = s.table + table;
  s.weights = s.scale_values + kScaleValuesBytes;
  s.bytes = s.weights + slots * (kLargeMRows / kStripRows) * stream + 1024;
  return s;
}

}  // namespace subbyte::cuda
