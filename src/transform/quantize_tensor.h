#pragma once
// Pieces of quantize_model: reading, converting and judging single tensors.

#include "checkpoints/containers/checkpoint_writer.h"
#include "checkpoints/containers/tensor_source.h"
#include "matrix/matrix.h"
#include "quantize/loss.h"
#include "quantize/row_reader.h"
#include "subbyte/executor.h"

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

/// Appends bytes to the tensor that is being written.
using AppendBytes = std::function<Status(std::span<const std::byte>)>;

/// Appends a tensor of F16, BF16 or F32 as F16, piece by piece, and returns what rounding does to
/// it: the same sums for any number of threads. Codes: quantize.f16_overflow for a number beyond
/// 65504, quantize.not_finite for NaN and infinity; both name the tensor.
Result<SignalAndNoise> write_as_float16(const FileTensor& tensor, Executor& pool,
                                        const AppendBytes& append);

}  // namespace subbyte
