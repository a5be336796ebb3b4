#pragma once
// Descriptions of matrices, subbyte_weights, as the library's own types.

#include <subbyte/subbyte.h>
#include <span>

#include "base/status.h"
#include "kernels/gpu/tile_order.h"
#include "matrix/matrix.h"
#include "subbyte/executor.h"

namespace subbyte::c {

/// A description that was checked. Spans lead where the caller's addresses do, and rows follow each
/// other there: strides are beside it.
struct Description {
  MatrixView view;
  gpu::RowOrder row_order = gpu::RowOrder::kNatural;
  int64_t strides[3] = {0, 0, 0};  // of codes, scales and zeros; 0: rows follow each other
  const int32_t* group_indices = nullptr;
  bool borrows = false;
  int device = -1;  // where all of it lies; -1: the host

  bool has_strides() const { return (strides[0] | strides[1] | strides[2]) != 0; }
};

/// Reads nothing that the addresses lead to but the codebook. Codes: c.null, c.struct_size,
/// c.argument.
Result<Description> read_weights(const subbyte_weights* weights);

/// The matrix of the host that a description says: copied unless it is borrowed, rows made to
/// follow each other, inputs put into the order of their groups. Act-order is checked. Codes:
/// c.argument, cuda.copy (from a GPU).
Result<Matrix> to_host(const Description& description, void* stream, Executor& pool);

/// The description of a matrix.
subbyte_weights describe(const MatrixView& view, gpu::RowOrder row_order, int device);

/// Checks that every input is there once. Code c.argument.
Status check_input_order(std::span<const uint32_t> order);

}  // namespace subbyte::c
