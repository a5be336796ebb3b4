#pragma once
// Weights as products on the CPU read them, from any canonical matrix:
//
//   formats with a kernel   as they are; unsigned integers get zero points
//   5 to 7 bits             in bytes, which are the same numbers
//   float zero points       W x = (codes * scales) x + offsets * (sums of x over each group)
//   all else                dequantized once to f32, four bytes a weight

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "matrix/matrix.h"
#include "subbyte/function_ref.h"

namespace subbyte {
class Execution;
}  // namespace subbyte

namespace subbyte::device {

/// Gives a copy that a call of `make` makes, or the one of an earlier call with the same weights.
/// `name` says which copy; `of` is the matrix that it is made of.
using KeepCopy = FunctionRef<Result<std::shared_ptr<const Matrix>>(
    const char* name, const MatrixView& of, FunctionRef<Result<Matrix>()> make)>;

struct HostWeights {
  MatrixView main;
  MatrixView offsets;  // dense [rows][groups]; of no rows where there are none
  /// The order of inputs in which groups of offsets follow each other, also where `main` is a copy
  /// in the order of x; empty: that of x.
  std::span<const uint32_t> order;
  /// The same numbers as f32 [groups][rows], for few rows of x.
  std::span<const float> offsets_by_group;
  int64_t group_size = 0;
  double factor = 1;  // of the offsets
  std::vector<std::shared_ptr<const void>> owners;

  /// Makes them of a view whose bytes stay. Its tensor_scale is in no copy. Codes:
  /// linear.unsupported for no rows or columns.
  static Result<HostWeights> create(Execution& execution, const MatrixView& view, KeepCopy keep);
  /// Makes them of a matrix, which it keeps with its copies.
  static Result<HostWeights> create(Execution& execution, const Matrix& matrix);

  bool has_offsets() const { return offsets.rows > 0; }
  /// Sets the offsets to numbers of f32, f16 or bf16 [rows][groups].
  Status set_offsets(const MatrixView& numbers, int64_t size_of_group, KeepCopy keep);
};

}  // namespace subbyte::device
