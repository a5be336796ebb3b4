#pragma once
// Rows of a canonical matrix as numbers: weight_at() for many at once, to the same bits.

#include <vector>

#include "matrix/matrix.h"

namespace subbyte {

class Dequantizer {
 public:
  /// The bytes of `matrix` must outlive this.
  explicit Dequantizer(const MatrixView& matrix);

  /// Writes row `row` to out[cols], out[k] being the weight of input k, with act-order too.
  /// May be called from several threads at a time.
  void row(int64_t row, double* out) const;

 private:
  void put(double* out, int64_t col, double value) const {
    out[matrix_.input_order.empty() ? col : matrix_.input_order[col]] = value;
  }
  void dense_row(int64_t row, double* out) const;

  MatrixView matrix_;
  std::vector<double> values_;  // of the codes; empty for dense formats
};

}  // namespace subbyte
