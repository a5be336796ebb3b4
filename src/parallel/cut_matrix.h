#pragma once
// Parts of canonical matrices (subbyte/matrix.h): rows, which may be cut anywhere, and columns,
// which are cut where neither a group, a rotation, a vector nor a byte of codes goes across.
//
//   rows      codes | scales | zeros of some rows
//   columns   of each row the codes, scales and zeros of some inputs
//
// Weights keep their bits. With act-order stored columns are cut, and their inputs are wherever the
// order says; a part of such columns has no order, as its inputs come in the order of its columns.

#include <cstdint>
#include <optional>

#include "base/status.h"
#include "matrix/matrix.h"
#include "ops/columns.h"

namespace subbyte {

/// Stored columns at whose multiples, and at whose end, a matrix may be cut.
int64_t column_unit(const MatrixView& matrix);

/// The stored columns that multiply these inputs, in their order; nullopt where they cannot be cut
/// out.
std::optional<Columns> stored_columns(const MatrixView& matrix, const Columns& inputs);

/// The inputs that stored columns multiply, in their order.
Columns inputs_of(const MatrixView& matrix, const Columns& stored);

/// Rows of a matrix, range after range. One range lies where it does; several are copied, and keep
/// nothing of the whole. Throws std::bad_alloc.
Matrix cut_rows(const Matrix& matrix, const Columns& rows);

/// The columns that multiply these inputs, copied, which stored_columns() finds. Throws
/// std::bad_alloc.
Matrix cut_columns(const Matrix& matrix, const Columns& inputs);

}  // namespace subbyte
