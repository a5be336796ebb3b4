#pragma once
// Pieces of quantize_model: reading, converting and judging single tensors.

#include <algorithm>
#include <cmath>

#include "base/executor.h"
#include "checkpoints/containers/checkpoint_writer.h"
#include "checkpoints/containers/tensor_source.h"
#include "matrix/matrix.h"
#include "quantize/row_reader.h"

namespace subbyte {

/// A matrix inside a tensor of floats: weight (n, k) is element
/// first + n * row_step + k * col_step.
struct MatrixRows {
  const FileTensor* tensor = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t first = 0;
  int64_t row_step = 0;
  int64_t col_step = 1;

  int64_t weights() const { return rows * cols; }
};

/// Its rows as floats. The tensor, of F16, BF16 or F32, must outlive the reader.
RowReader row_reader(const MatrixRows& matrix);

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

/// Appends bytes to the tensor that is being written.
using AppendBytes = std::function<Status(std::span<const std::byte>)>;

/// Appends a tensor of F16, BF16 or F32 as F16, piece by piece, and returns what rounding does to
/// it: the same sums for any number of threads. Codes: quantize.f16_overflow for a number beyond
/// 65504, quantize.not_finite for NaN and infinity; both name the tensor.
Result<SignalAndNoise> write_as_float16(const FileTensor& tensor, Executor& pool,
                                        const AppendBytes& append);

/// Appends the bytes of a tensor as they are, piece by piece, and gives their pages back.
Status write_as_it_is(const FileTensor& tensor, const AppendBytes& append);

}  // namespace subbyte
