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

/// Rows of a tensor [...][K] of F16, BF16 or F32 as floats, from `first_row` on. The tensor must
/// outlive the reader.
RowReader row_reader(const FileTensor& tensor, int64_t first_row = 0);

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

/// Measures a matrix of 4-bit codes with f16 scales and u8 zero points. The same sum, in the same
/// order, for any number of threads.
SignalAndNoise quantization_error(const MatrixView& matrix, const RowReader& read_row,
                                  Executor& pool);

/// Appends bytes to the tensor that is being written.
using AppendBytes = std::function<Status(std::span<const std::byte>)>;

/// Appends a tensor of F16, BF16 or F32 as F16, piece by piece, and returns what rounding does to
/// it: the same sums for any number of threads. Codes: quantize.f16_overflow for a number beyond
/// 65504, quantize.not_finite for NaN and infinity; both name the tensor.
Result<SignalAndNoise> write_as_float16(const FileTensor& tensor, Executor& pool,
                                        const AppendBytes& append);

}  // namespace subbyte
