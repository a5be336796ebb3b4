#pragma once
// Two matrices of one shape as one whose rows are theirs in turns: gpt-oss has gate and up so, and
// llm-compressor stores them apart.
//
//   row 2i = row i of the first     row 2i + 1 = row i of the second

#include "base/status.h"
#include "matrix/matrix.h"

namespace subbyte {

/// Code layout.format when format, shape, factor, codebook or order of inputs are not the same.
Result<Matrix> alternate_rows(const MatrixView& first, const MatrixView& second);

/// The inverse: the rows 2i (`first` 0) or 2i + 1 (1) of a matrix with an even number of rows.
Matrix every_second_row(const MatrixView& both, int first);

/// The rows [first, first + count) where they lie.
MatrixView rows_of(const MatrixView& matrix, int64_t first, int64_t count);

}  // namespace subbyte
