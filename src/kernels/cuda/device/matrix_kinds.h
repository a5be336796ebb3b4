#pragma once
// What the host and all GPUs, CUDA's and Metal's, agree on beside the order of the codes.

#include "kernels/cuda/tile_order.h"

namespace subbyte::cuda {

/// How a byte, or two, or four, of a scale are read.
enum class ScaleKind : uint8_t { kF32, kF16, kBF16, kE8M0, kE4M3, kE4M4 };

SUBBYTE_DEVICE constexpr int scale_bytes(ScaleKind kind) {
  return kind == ScaleKind::kF32 ? 4 : kind == ScaleKind::kF16 || kind == ScaleKind::kBF16 ? 2 : 1;
}

/// Which row of the matrix is row `row` of strip `strip`. The two that interleave put the gate and
/// the up projection of 8 hidden units into one strip, 8 rows above 8 rows, so that one lane has
/// both in its registers and the activation costs no traffic.
enum class RowOrder : uint8_t {
  kNatural,
  kGateAboveUp,  // the matrix has all gate rows first: two matrices, one below the other
  kGateUpPairs,  // even rows are gate, odd rows up: gpt-oss
};

SUBBYTE_DEVICE constexpr int64_t source_row(RowOrder order, int64_t strip, int row, int64_t rows) {
  const int64_t unit = strip * 8 + row % 8;
  switch (order) {
    case RowOrder::kGateAboveUp:
      return unit >= rows / 2 ? rows : row / 8 * (rows / 2) + unit;
    case RowOrder::kGateUpPairs:
      return 2 * unit + row / 8;
    default:
      return strip * kStripRows + row;
  }
}

}  // namespace subbyte::cuda
