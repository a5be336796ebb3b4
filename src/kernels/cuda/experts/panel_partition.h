#pragma once
// Experts of few tokens by wgmma: how the work is divided, and where things are in shared memory.
// Host and device compute the same.

#include <cstdint>

#include "kernels/cuda/common/arguments.h"

namespace subbyte::cuda {

inline constexpr int kPanelTokens = 16;
inline constexpr int kPanelWarpgroups = 4;
inline constexpr int kPanelThreads = kPanelWarpgroups * 128;
/// Strips of a unit, one for each warp of a warpgroup.
inline constexpr int kUnitStrips = 4;
/// K tiles that a warp copies, and multiplies, at a time.
inline constexpr int kPanelBatch = 4;

/// Such batches that a warp has in flight.
SUBBYTE_DEVICE constexpr int panel_depth(int bits) {
  return bits <= 4 ? 3 : 2;
}

/// Offsets in shared memory are in bytes. The panel comes first.
struct PanelPartition {
  int32_t units;        // of an expert
  int32_t batches;      // of a strip
  int32_t one_group;    // both tiles of a pair have the same scales
  int32_t pair_blocks;  // scale blocks from a pair of tiles to the next: 0, 1 or 2
  int32_t step_blocks;  // from a batch to the next
  int32_t scale_bytes;  // of a batch
  int32_t zero_bytes;   // the same of zero points, that are copied
  int32_t slot_bytes;   // of a batch: codes, scales, zero points
  int32_t x_sums;       // [group of inputs][token] floats
  int32_t heads;        // [warpgroup after the first][sum][thread] floats
  int32_t rings;        // [warp][depth] slots
  int32_t scale_values;
  int32_t table;
};

}  // namespace subbyte::cuda
