#include "linear_shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace subbyte::python {

Result<LinearShape> linear_shape(const MatrixView& matrix, const AnyArray& x) {
  const auto cols = static_cast<std::size_t>(matrix.cols);
  if (x.ndim() == 0 || x.shape(x.ndim() - 1) != cols || x.size() == 0) {
    return Error{"array.shape",
                 fmt::format("x: expected [.., {}] with one row or more, as the matrix has {} "
                             "inputs, found {} numbers in {} dimensions",
                             cols, cols, x.size(), x.ndim())};
  }
  LinearShape shape;
  for (std::size_t i = 0; i + 1 < x.ndim(); ++i) shape.result.push_back(x.shape(i));
  shape.result.push_back(static_cast<std::size_t>(matrix.rows));
  shape.m = static_cast<int64_t>(x.size() / cols);
  return shape;
}

Status check_bias(const MatrixView& matrix, std::size_t numbers) {
  if (static_cast<int64_t>(numbers) == matrix.rows) return {};
  return Error{"array.shape",
               fmt::format("bias: expected [{}], one number for each output, found {} numbers",
                           matrix.rows, numbers)};
}

Status check_out(const LinearShape& shape, const std::vector<std::size_t>& out) {
  if (out == shape.result) return {};
  return Error{"array.shape", fmt::format("out: expected [{}], as x and the matrix say, found [{}]",
                                          fmt::join(shape.result, ", "), fmt::join(out, ", "))};
}

}  // namespace subbyte::python
