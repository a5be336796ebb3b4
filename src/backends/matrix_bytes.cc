#include "backends/matrix_bytes.h"

#include "cuda_backend/weight_bytes.h"
#include "matrix/matrix.h"

namespace subbyte {

Result<int64_t> gpu_matrix_bytes(const MatrixShape& shape) {
  return cuda_matrix_bytes(shape);
}

int64_t host_matrix_bytes(const MatrixShape& shape) {
  MatrixView view;
  view.format = shape.format;
  view.rows = shape.rows;
  view.cols = shape.cols;
  const int64_t numbers =
      is_dense(view.format) ? 0 : view.scale_row_bytes() + view.zero_row_bytes();
  return shape.experts * shape.rows * (view.row_bytes() + numbers);
}

}  // namespace subbyte
