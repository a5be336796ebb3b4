#pragma once
// Quantization to NF4 of bitsandbytes: a table of 16 normal quantiles, an f32 scale for each block.

#include <cstdint>

#include "base/status.h"
#include "matrix/matrix.h"
#include "quantize/row_reader.h"
#include "subbyte/executor.h"

namespace subbyte {

/// The scale of a block is its largest magnitude, or 1 for a block of zeros; the code is that of
/// the table's number nearest to w / scale, of two equally near the lower one.
/// `block` divides `cols`, so that no block reaches into the next row; 0 is the whole row.
/// Codes: those of quantize_rows.
Result<Matrix> quantize_nf4(int64_t rows, int64_t cols, int64_t block, const RowReader& read_row,
                            Executor& pool);

}  // namespace subbyte
