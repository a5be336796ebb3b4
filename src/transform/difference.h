#pragma once
// How far apart two versions of the same weights are.

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "matrix/matrix.h"
#include "subbyte/executor.h"
#include "subbyte/transform.h"

namespace subbyte {

/// Compares two matrices of one shape, in any formats, input by input. The same sums, in the same
/// order, for any number of threads.
Difference difference(const MatrixView& a, const MatrixView& b, Executor& pool);

}  // namespace subbyte
