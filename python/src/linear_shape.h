#pragma once
// The shape of a product with a matrix, whichever machine computes it.

#include <cstdint>
#include <vector>

#include "arrays.h"
#include "matrix/matrix.h"

namespace subbyte::python {

struct LinearShape {
  std::vector<std::size_t> result;
  int64_t m = 0;  // rows of x
};

/// The shape for x [.., inputs]. Code array.shape.
Result<LinearShape> linear_shape(const MatrixView& matrix, const AnyArray& x);

/// Checks that there is a number for each output. Code array.shape.
Status check_bias(const MatrixView& matrix, std::size_t numbers);

/// Checks that an array for the result has its shape. Code array.shape.
Status check_out(const LinearShape& shape, const std::vector<std::size_t>& out);

}  // namespace subbyte::python
