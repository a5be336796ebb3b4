#pragma once
// What a public matrix holds.

#include <mutex>

#include "cpp_interface/convert.h"
#include "matrix/zero_points.h"

namespace subbyte::v0 {

struct Matrix::Data {
  explicit Data(subbyte::Matrix of);

  /// The matrix as the kernels of the CPU read it, made when it is wanted for the first time.
  const MatrixView& for_kernels() const;

  subbyte::Matrix matrix;
  MatrixParts parts;  // a view of it

 private:
  mutable std::once_flag once_;
  mutable subbyte::Matrix for_kernels_;
};

Matrix to_public(subbyte::Matrix matrix);

}  // namespace subbyte::v0
