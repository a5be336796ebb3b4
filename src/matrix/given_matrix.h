#pragma once
// Matrices of bytes that programs bring.

#include "base/status.h"
#include "subbyte/matrix.h"

namespace subbyte {

/// Checks the format, the sizes of all bytes, the order of inputs and the codebook. Code
/// matrix.argument.
Status check_matrix(const MatrixView& view);

}  // namespace subbyte
