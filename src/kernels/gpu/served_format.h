#pragma once
// Formats that the packed kernels do not have, as one that they have: every matrix that runs on the
// CPU runs on a GPU, if not always in as few bytes.

#include "base/executor.h"
#include "base/status.h"
#include "matrix/matrix.h"

namespace subbyte::gpu {

/// What a matrix of that format is held as:
///   itself                 f32, f16 and bf16, and what packed_format() takes
///   with smaller groups    where only the groups are too large: scales are repeated, nothing is
///                          rounded
///   u8 or i8               integers of 5, 6 and 7 bits, which are the same numbers
///   dense f16              all else: each weight is rounded, as activations are. Where f16 would
///                          not hold the largest one, or have too few bits for it, it is bf16
WeightFormat served_format(const WeightFormat& format, int64_t rows, int64_t cols);

/// `matrix` as served_format() says. Codes: recast.*.
Result<Matrix> serve(Matrix matrix, Executor& executor);

}  // namespace subbyte::gpu
