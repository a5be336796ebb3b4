#pragma once
// Quantization to NVFP4: e2m1 elements, an e4m3 scale for each 16 inputs, and a factor for the
// whole matrix.
//
// The steps of e2m1 are 2 between 4 and 6 and at most 1 below, so a block whose numbers lie near
// its largest is better off when that one becomes 4 instead of 6. Both are tried for each block,
// and the one with the smaller sum of squared errors stays ("4 over 6"). Scales are up to half as
// large again then: the factor leaves room for that, so that the largest scale of all is 256 or
// 384, which e4m3 holds.

#include <cstdint>

#include "base/status.h"
#include "matrix/matrix.h"
#include "matrix/recast.h"
#include "quantize/row_reader.h"
#include "subbyte/executor.h"

namespace subbyte {

struct Nvfp4Options {
  /// The largest magnitude of all matrices that shall have one factor; 0: that of this one.
  double largest = 0;
  /// The use of the float in a file, which holds the factor or its inverse: kDivides in
  /// compressed-tensors, kMultiplies in ModelOpt.
  TensorFactor factor = TensorFactor::kDivides;
  bool four_over_six = true;  // false: the largest of a block always becomes 6
};

/// `cols` is a multiple of 16. Codes: those of quantize_rows.
Result<Matrix> quantize_nvfp4(int64_t rows, int64_t cols, const Nvfp4Options& options,
                              const RowReader& read_row, Executor& pool);

}  // namespace subbyte
