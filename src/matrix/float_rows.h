#pragma once
// Rows of a canonical matrix as floats: weight_at() for many at once.

#include <optional>
#include <vector>

#include "matrix/dequantize.h"
#include "matrix/matrix.h"

namespace subbyte {

class FloatRows {
 public:
  /// The bytes of `matrix` must outlive this.
  explicit FloatRows(const MatrixView& matrix);

  /// Writes row `row` to out[cols], out[k] being the weight of input k, with act-order too: the
  /// float next to weight_at(), or, where the matrix has a tensor_scale, within two roundings.
  /// May be called from several threads at a time.
  void row(int64_t row, float* out) const;

 private:
  void rotated_row(int64_t row, float* out) const;
  template <typename T>
  void convert_row(const std::byte* codes, float* out) const;
  void dense_row(int64_t row, float* out) const;
  float element_at(int64_t row, int64_t col) const;

  MatrixView matrix_;
  float tensor_scale_;
  std::vector<float> values_;  // by code; empty for wide elements
  std::optional<Dequantizer> rotated_;
};

}  // namespace subbyte
