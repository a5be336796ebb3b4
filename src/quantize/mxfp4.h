#pragma once
// Quantization to MXFP4: e2m1 elements, an e8m0 scale for each 32 inputs.

#include <cstdint>

#include "base/status.h"
#include "formats/mx_scale.h"
#include "matrix/matrix.h"
#include "quantize/row_reader.h"
#include "subbyte/executor.h"

namespace subbyte {

/// `cols` is a multiple of 32. Elements are w / scale, which is exact, rounded by `rounding` and
/// saturated at +-6. The rules of known tools:
///   transformers        kCeil, kNearestEven
///   compressed-tensors  kBump175, kNearestEven
///   ggml                kFloor, kNearestLowerIndex
/// Blocks of zeros get scale code 0. Codes: those of quantize_rows, without scale_overflow: every
/// binary32 number is in range.
Result<Matrix> quantize_mxfp4(int64_t rows, int64_t cols, ScaleRule rule, Rounding rounding,
                              const RowReader& read_row, Executor& pool);

/// The same with the better scale for each block: that of kCeil, which clips nothing, or half of
/// it, where clipping the largest numbers costs less than the coarser steps of the others. Elements
/// are rounded to the nearest, ties to even. The sum of the squared errors is at most that of any
/// rule above.
Result<Matrix> quantize_mxfp4(int64_t rows, int64_t cols, const RowReader& read_row,
                              Executor& pool);

}  // namespace subbyte
