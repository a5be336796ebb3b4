#pragma once
// For tests of quantizers: weights in memory, and errors of a quantized matrix.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/random.h"
#include "matrix/matrix.h"
#include "quantize/row_reader.h"

namespace subbyte {

struct Weights {
  int64_t rows;
  int64_t cols;
  std::vector<float> values;

  float at(int64_t row, int64_t col) const {
    return values[static_cast<std::size_t>(row * cols + col)];
  }
  float& at(int64_t row, int64_t col) { return values[static_cast<std::size_t>(row * cols + col)]; }
};

inline Weights one_row(std::vector<float> values) {
  return {1, static_cast<int64_t>(values.size()), std::move(values)};
}

inline Weights normal_weights(int64_t rows, int64_t cols, uint64_t seed) {
  Random random(seed);
  Weights weights = {rows, cols, std::vector<float>(static_cast<std::size_t>(rows * cols))};
  for (float& value : weights.values) value = static_cast<float>(random.normal());
  return weights;
}

inline RowReader reader_of(const Weights& weights) {
  return [&weights](int64_t row, float* out) {
    std::copy_n(weights.values.data() + row * weights.cols, weights.cols, out);
  };
}

/// Signal to noise of the dequantized weights, in dB.
inline double signal_to_noise(const Weights& weights, const MatrixView& matrix) {
  double signal = 0;
  double noise = 0;
  for (int64_t row = 0; row < weights.rows; ++row) {
    for (int64_t col = 0; col < weights.cols; ++col) {
      const double weight = weights.at(row, col);
      const double error = weight_at(matrix, row, col) - weight;
      signal += weight * weight;
      noise += error * error;
    }
  }
  return 10 * std::log10(signal / noise);
}

}  // namespace subbyte
