#pragma once
// Descriptions of matrices, subbyte_weights, as the library's own types.

#include <subbyte/subbyte.h>
#include <span>

#include "base/status.h"
#include "device/staged_matrix.h"
#include "matrix/matrix.h"
#include "subbyte/executor.h"

namespace subbyte::c {

/// A description that was checked. Spans lead where the caller's addresses do.
struct Description : device::StridedMatrix {
  gpu::RowOrder row_order = gpu::RowOrder::kNatural;
  bool borrows = false;
  int device = -1;  // where all of it lies; -1: the host
};

/// Reads nothing that the addresses lead to but the codebook. Codes: c.null, c.struct_size,
/// c.argument.
Result<Description> read_weights(const subbyte_weights* weights);

/// The matrix that a description of the host says: copied unless it is borrowed, rows made to
/// follow each other, inputs put into the order of their groups. Act-order is checked. Code
/// c.argument.
Result<Matrix> to_matrix(const Description& description, Executor& pool);

/// The description of a matrix.
subbyte_weights describe(const MatrixView& view, gpu::RowOrder row_order, int device);

}  // namespace subbyte::c
