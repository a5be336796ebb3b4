#pragma once
// Matrices inside of tensors of floats, as quantizers read them.

#include <cstdint>

#include "quantize/row_reader.h"
#include "subbyte/modules.h"

namespace subbyte {

/// A matrix inside a tensor of floats: weight (n, k) is element
/// first + n * row_step + k * col_step.
struct MatrixRows {
  const FileTensor* tensor = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t first = 0;
  int64_t row_step = 0;
  int64_t col_step = 1;

  int64_t weights() const { return rows * cols; }
};

/// Its rows as floats. The tensor, of F16, BF16 or F32, must outlive the reader.
RowReader row_reader(const MatrixRows& matrix);

}  // namespace subbyte
