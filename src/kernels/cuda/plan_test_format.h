#pragma once
// Formats of large matrices for tests of plans.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/gpu/packed_weights.h"

namespace subbyte::cuda {

/// The packed form of a matrix that is not there: of one row of zeros, with as many strips as
/// `rows` need. Plans need no more.
inline gpu::PackedFormat format_of(const WeightFormat& format, int64_t rows, int64_t cols) {
  MatrixView view;
  view.format = format;
  view.rows = 1;
  view.cols = cols;
  const std::vector<std::byte> zeros(view.row_bytes() + view.groups() * 4 + 1);
  const std::span<const std::byte> bytes(zeros);
  view.codes = bytes.first(view.row_bytes());
  view.scales = bytes.first(view.scale_row_bytes());
  view.zeros = bytes.first(view.zero_row_bytes());
  const std::vector<float> codebook(info(format.element).vector_size > 1 ? view.num_codes() : 0);
  view.codebook = codebook;
  gpu::PackedFormat packed = *gpu::packed_format(view);
  packed.rows = rows;
  packed.strips = (rows + gpu::kStripRows - 1) / gpu::kStripRows;
  return packed;
}

}  // namespace subbyte::cuda
