#pragma once
// Blocks of ggml as canonical matrices: the same numbers, to the bit.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "foreign_layouts/ggml_types.h"
#include "matrix/matrix.h"
#include "subbyte/executor.h"

namespace subbyte {

/// Makes a matrix of blocks [rows][cols / type.block]. Bytes of dense types stay where they are,
/// and `owner` is kept; others are copied. A factor of the tensor, as NVFP4 has one beside its
/// blocks, is the caller's to set (MatrixView::tensor_scale). Code 8 of e2m1 stays -0, which ggml
/// reads as 0.
/// Codes: layout.format (a type that is no matrix), layout.shape (rows that blocks do not divide,
/// another number of bytes), layout.scale (what bad_ggml_block() finds).
Result<Matrix> ggml_matrix(const GgmlType& type, int64_t rows, int64_t cols,
                           std::span<const std::byte> blocks, Executor& executor,
                           std::shared_ptr<const void> owner = nullptr);

/// The first block with a scale or an offset that is infinite or NaN, or that ggml does not read as
/// the format has it (bytes 255 of MXFP4, 127 and more of NVFP4); -1 where there is none. `blocks`
/// are whole ones.
int64_t bad_ggml_block(const GgmlType& type, std::span<const std::byte> blocks);

}  // namespace subbyte
