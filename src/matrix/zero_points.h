#pragma once
// Symmetric integers in two forms: iN, whose codes have 2^(N-1) subtracted, and uN with that zero
// point for every group. The codes are the same bytes. compressed-tensors and GGUF store the first,
// GPTQ and AWQ the second; kernels read both. Float zero points (offsets) are neither.

#include "matrix/matrix.h"

namespace subbyte {

/// i2 to i8 without zero points become u2 to u8 with them; anything else stays what it is.
Matrix with_zero_points(Matrix matrix);

/// u5, u6, u7 and i5, i6, i7 become u8 and i8, the same numbers; anything else stays what it is.
Matrix with_whole_bytes(Matrix matrix);
WeightFormat with_whole_bytes(WeightFormat format);

/// u2 to u8 become i2 to i8 when all zero points are 2^(N-1); anything else stays what it is.
Matrix without_zero_points(Matrix matrix);

}  // namespace subbyte
