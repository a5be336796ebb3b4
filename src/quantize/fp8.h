#pragma once
// Quantization to FP8 in blocks: e4m3 elements, an f32 factor for each block of 128 outputs by 128
// inputs, the last of which may be short.
//
//   factor = max|w| of the block / 448       code = e4m3 nearest to w / factor, ties to even
//
// as transformers, DeepSeek and llm-compressor have it. Codes are computed with the factor as f32
// holds it. A block of zeros has the factor 1, and what would be below 2^-126 is that.

#include <cstdint>

#include "base/status.h"
#include "matrix/matrix.h"
#include "quantize/row_reader.h"
#include "subbyte/executor.h"

namespace subbyte {

inline constexpr int64_t kFp8Block = 128;

/// The canonical matrix, in which each row has the factors of its blocks. The same for any number
/// of threads. Codes: quantize.shape (sizes that are not positive or too large),
/// quantize.not_finite, quantize.out_of_memory.
Result<Matrix> quantize_fp8(int64_t rows, int64_t cols, const RowReader& read_row, Executor& pool);

}  // namespace subbyte
