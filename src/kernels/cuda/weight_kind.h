#pragma once
// Which kernels read a packed matrix.

#include "kernels/cuda/common/arguments.h"
#include "kernels/gpu/packed_weights.h"

namespace subbyte::cuda {

/// A line of weights.def: decoder, bits of a code, groups of a tile, levels of scales.
struct WeightKind {
  DecoderKind decoder;
  int bits;
  int groups;
  int levels;

  constexpr bool operator==(const WeightKind&) const = default;
};

constexpr WeightKind kind_of(const PackedFormat& format) {
  return {format.decoder, format.bits, format.groups_per_tile, in_superblocks(format) ? 2 : 1};
}

}  // namespace subbyte::cuda
