#pragma once
// Weights of any canonical format as linear() multiplies them:
//
//   formats with a kernel     as they are (matrix/zero_points.h: for_host_kernels())
//   float zero points         W x = (codes * scales) x + offsets * (sums of x over each group): the
//                             first with the kernel of those codes, the second with offsets
//                             [rows][groups] as a dense matrix
//   all else                  dequantized once to f32, four bytes a weight

#include <span>

#include "cpu_backend/linear.h"
#include "matrix/matrix.h"

namespace subbyte {

class LinearWeights {
 public:
  /// The sizes of `matrix` are right, and its order of inputs has every input once. Codes:
  /// linear.unsupported for no rows or columns.
  static Result<LinearWeights> create(Execution& execution, Matrix matrix);

  /// y[m][rows] = x[m][cols] W^T + bias. y must not overlap x. Code linear.unsupported.
  Status multiply(Execution& execution, std::span<float> y, std::span<const float> x, int64_t m,
                  std::span<const float> bias = {}) const;

  /// Bytes that a product reads.
  int64_t bytes() const { return matrix_.view.bytes() + offsets_.view.bytes(); }
  bool has_offsets() const { return offsets_.view.rows > 0; }

 private:
  void sum_groups(Executor& executor, std::span<float> sums, std::span<const float> x,
                  int64_t m) const;

  Matrix matrix_;
  Matrix offsets_;  // dense [rows][groups]; no rows where there are none
  int64_t group_size_ = 0;
  double offset_scale_ = 1;
};

}  // namespace subbyte
