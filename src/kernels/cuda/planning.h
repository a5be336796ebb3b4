#pragma once
// What the plans of all kernels are made from.

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/cost_model.h"
#include "kernels/cuda/plan.h"
#include "kernels/cuda/prepare_inputs.h"
#include "kernels/gpu/packed_weights.h"

namespace subbyte::cuda {

struct Planning {
  const Problem& problem;
  const Device& device;
  const CostModel& cost;
};

inline int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

inline double scale_bytes_of_tile(const PackedFormat& f) {
  const int zeros = kStripRows * f.groups_per_tile * f.zero_bytes;
  return static_cast<double>(scale_block_bytes(f) + zeros) / static_cast<double>(f.tiles_per_block);
}

/// Products find a zero point beside the scales of each group.
inline bool zeros_beside(const PackedFormat& f) {
  return f.decoder == DecoderKind::kIntegers && !in_superblocks(f);
}

inline double bytes_of_tile(const PackedFormat& f) {
  return tile_bytes(f.bits) + scale_bytes_of_tile(f);
}

/// Shared memory of the table of a codebook, which comes before everything else.
inline int table_of(const PackedFormat& f) {
  if (f.decoder == DecoderKind::kVectors) return 256 * kLanes * 4;
  return f.decoder == DecoderKind::kCodebook && f.bits < 5 ? (1 << (2 * f.bits)) * kLanes * 4 : 0;
}

/// Numbers from one token to the next of inputs that prepare_inputs() makes, and bytes of all.
inline int64_t prepared_stride(int64_t cols) {
  return divide_up(cols, kPreparedGrain) * kPreparedGrain;
}
inline int64_t prepared_bytes(int64_t m, int64_t cols) {
  return m * prepared_stride(cols) * 2;
}

/// The two tiles of a pair, the first of which is even, have the same scales.
inline bool pair_is_one_group(const PackedFormat& f) {
  return f.groups_per_tile == 1 && (f.tiles_per_block % 2 == 0 || f.blocks == 1);
}

}  // namespace subbyte::cuda
