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

/// The type whose blocks hold every matrix of that format to the bit, of those with one level of
/// scales: floats, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, MXFP4, NVFP4; nullptr: none does.
const GgmlType* ggml_type_of(const WeightFormat& format);

/// Writes the blocks of rows [begin, end) of a matrix whose format is of `type`, as ggml_type_of()
/// finds it: the inverse of ggml_matrix(), without the factor of the tensor. Columns are whole
/// blocks, without act-order.
void pack_ggml_rows(const GgmlType& type, const MatrixView& matrix, int64_t begin, int64_t end,
                    std::byte* to);

/// The first block with a scale or an offset that is infinite or NaN, or that ggml does not read as
/// the format has it (bytes 255 of MXFP4, 127 and more of NVFP4); -1 where there is none. `blocks`
/// are whole ones.
int64_t bad_ggml_block(const GgmlType& type, std::span<const std::byte> blocks);

}  // namespace subbyte
