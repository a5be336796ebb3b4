#pragma once
// What rounding leaves of weights, and how little is too little.

#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "matrix/matrix.h"
#include "quantize/row_reader.h"
#include "subbyte/executor.h"

namespace subbyte {

/// Sums over weights: w^2, and (w - w')^2 with w' what became of it.
struct SignalAndNoise {
  double signal = 0;
  double noise = 0;
  double largest = 0;  // of |w|

  void add(double weight, double error) {
    signal += weight * weight;
    noise += error * error;
    largest = std::max(largest, std::abs(weight));
  }
  SignalAndNoise& operator+=(const SignalAndNoise& other) {
    signal += other.signal;
    noise += other.noise;
    largest = std::max(largest, other.largest);
    return *this;
  }

  /// Infinite without noise.
  double db() const;
};

/// Compares a matrix with the floats that it was made of. The same sum, in the same order, for any
/// number of threads.
SignalAndNoise quantization_error(const MatrixView& matrix, const RowReader& read_row,
                                  Executor& pool);

/// The signal to noise that so many bits leave of weights of any ordinary distribution, and more:
/// 10 dB with 4 bits or more, 6 less for each bit below; at least 0, as much as zeros leave.
double least_signal_db(int bits);

/// Refuses a matrix in which less than least_signal_db() is left of the floats that it was made of,
/// or nothing at all. Code quantize.loss.
Status check_loss(const MatrixView& matrix, const RowReader& read_row, Executor& pool);

}  // namespace subbyte
