#pragma once
// Bytes that a matrix takes of a machine that need not be there.

#include "ops/machine_memory.h"

namespace subbyte {

/// In the memory of a GPU. Code linear.unsupported for what GPUs do not serve.
Result<int64_t> gpu_matrix_bytes(const MatrixShape& shape);

/// In that of the host, as in a file.
int64_t host_matrix_bytes(const MatrixShape& shape);

}  // namespace subbyte
