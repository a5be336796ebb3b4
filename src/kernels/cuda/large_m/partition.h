#pragma once
// large_m: how the work is divided, and where things are in shared memory. Host and device compute
// the same.

#include <cstdint>

#include "kernels/cuda/common/arguments.h"
#include "kernels/gpu/superblock.h"

namespace subbyte::cuda {

inline constexpr int kLargeMThreads = 384;
/// Outputs of a CTA.
inline constexpr int kLargeMRows = 128;

/// K tiles whose weights are copied together, of codes of `bits`: 2 or 4.
SUBBYTE_DEVICE constexpr int weight_batch(int bits) {
  return bits > 8 ? 2 : 4;
}
/// Such batches in shared memory, of products of 16-bit numbers.
inline constexpr int kLeastWeightSlots = 2;

/// Parts of K, at most: a cluster has at most eight CTAs on any GPU.
inline constexpr int kMaxSplitsOfK = 8;

/// Bytes from one token to the next of the 64 outputs of a warpgroup in the staged results.
inline constexpr int kStagedRowBytes = 64 * 2;
/// The same in floats, where sums are staged.
inline constexpr int kStagedStride = 64 + 4;

/// A cluster has multicast * splits CTAs: CTA part * multicast + row. Output tiles are kLargeMRows
/// outputs (n) by the kernel's tokens (m).
struct LargeMPartition {
  int32_t multicast;   // CTAs, 1 or 2, that share tokens
  int32_t splits;      // split-K: CTAs that share outputs, each with its part of K
  int32_t full_waves;  // waves of whole output tiles, `splits` of each cluster, before those
                       // that are split
  int32_t tiles_n;     // a multiple of `multicast`
  int32_t tiles_m;
  int32_t swizzle_width;  // tiles along m that run together, to share what is in L2
  Parts k_tiles;          // by splits, none of them empty
  int32_t weight_slots;   // batches of weights in shared memory
  int32_t copied_tokens;  // of a tile, by each of the CTAs that share them: a multiple of 8
};

/// `batch` tiles of one strip (weights.cuh): codes, scales and zero points as they are in memory.
SUBBYTE_DEVICE constexpr int large_m_stream_bytes(int batch, int bits, int groups, int scale_size,
                                                  int zero_size) {
  return batch * (tile_bytes(bits) + groups * kStripRows * (scale_size + zero_size));
}
/// The same with a superblock, of which a batch is tiles.
SUBBYTE_DEVICE constexpr int large_m_stream_bytes(int batch, int bits, const Superblock& form) {
  return batch * tile_bytes(bits) + form.bytes();
}

template <int kTokens>
struct LargeMShape {
  static constexpr int kTileBytes = kTokens * kTileCols * 2;
  /// K tiles of a stage of activations: a batch of weights, or one.
  static constexpr int kStageTiles = kTokens <= 64 ? 4 : 1;
  static constexpr int kStageBytes = kStageTiles * kTileBytes;
  static constexpr int kStages = kTokens == 16 ? 6 : kTokens == 64 ? 3 : kTokens == 128 ? 8 : 4;
  static constexpr int kWeightSlots = kTokens <= 64 ? 6 : 4;  // at most
  static constexpr int kWeightAlignment = 16;
  static constexpr int kRingBytes = kStages * kStageBytes;
  /// Tokens of which results are staged at a time, or sums.
  static constexpr int kStagedTokens = kTokens >= 128 ? 64 : kTokens >= 32 ? 32 : 16;
  static constexpr int kStagedSums = kTokens >= 128 ? 32 : 16;
  static constexpr int kStagedBytes = 2 * kStagedSums * kStagedStride * 4;
  static_assert(kStagedTokens * kStagedRowBytes * 2 <= kStagedBytes);
  static_assert(kLargeMRows * kTokens * 4 <= kRingBytes,
                "CTAs that share outputs put their partials where the ring of activations was");
};

/// The same of products in E4M3 (w8a8_products.cuh): a stage and a slot have 128 inputs each, so
/// that as many of both are on their way. Factors of the stages' tokens follow the stages.
struct LargeMBlockShape {
  static constexpr int kTokens = 128;
  static constexpr int kBatch = 2;  // K tiles of a slot
  static constexpr int kTileBytes = kTokens * kBatch * kTileCols;
  static constexpr int kFactorBytes = kTokens * 4;
  static constexpr int kStages = 6;
  static constexpr int kWeightSlots = 6;
  static constexpr int kWeightAlignment = 128;  // a tensor map copies them
  static constexpr int kRingBytes = kStages * (kTileBytes + kFactorBytes);
  static constexpr int kStagedBytes = LargeMShape<kTokens>::kStagedBytes;
  static_assert(kLargeMRows * kTokens * 4 <= kRingBytes);
};

/// Offsets in bytes, after alignment to 1024. The ring of activations comes first.
struct LargeMShared {
  int barriers;  // mbarriers, full and empty: of the ring's stages, then of the slots of weights
  int staged;
  int table;
  int scale_values;
  int weights;  // [slots][8] streams; in E4M3 [slots] of [8] codes, then [8] scales
  int bytes;
};

/// `table` and `stream` (a batch of one strip) are bytes.
template <class Shape>
SUBBYTE_DEVICE constexpr LargeMShared large_m_shared(int table, int stream, int slots) {
  LargeMShared s = {};
  s.barriers = Shape::kRingBytes;
  s.staged = s.barriers + (Shape::kStages + Shape::kWeightSlots) * 16;
  s.table = s.staged + Shape::kStagedBytes;
  s.scale_values = s.table + table;
  s.weights = s.scale_values + kScaleValuesBytes;
  s.weights =
      (s.weights + Shape::kWeightAlignment - 1) / Shape::kWeightAlignment * Shape::kWeightAlignment;
  s.bytes = s.weights + slots * (kLargeMRows / kStripRows) * stream + 1024;
  return s;
}

}  // namespace subbyte::cuda
