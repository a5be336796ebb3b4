#pragma once
// Vector quantization: a byte is the index of one of 256 vectors that stand for 4 or 2 weights, 2
// or 4 bits a weight, with a scale for each 32 inputs. Weights are rotated first as a rule
// (formats/rotation.h), which makes them like the normal random numbers that the codebooks are
// trained on, without a look at any model.
//
//   w  = W H / sqrt(rotation)
//   w' = codebook[byte] * scale * factor
//
// Each vector is the nearest one for the scale that is stored, of equal ones the first. Of five
// scales near the largest magnitude of the block that with the smallest squared error is stored.
// `factor` is a power of two for the whole matrix, MatrixView::tensor_scale, as in kbit.h.

#include <cstdint>
#include <span>

#include "base/status.h"
#include "matrix/matrix.h"
#include "quantize/kbit.h"
#include "quantize/row_reader.h"
#include "subbyte/executor.h"

namespace subbyte {

/// The vectors of 4 weights (2 bits) or 2 weights (4 bits): 256 of them, numbers of f16.
std::span<const uint16_t> vq_codebook(int bits);

/// vq2 or vq4. `bits` is 2 or 4.
Format vq_element(int bits);

struct VqOptions {
  int bits = 2;  // or 4
  int64_t rotation = 0;
  KbitScales scales = {};  // E4M4 or F16
};

/// `cols` is a multiple of 32 and of the rotation. Codes: quantize.bits, quantize.scale_format,
/// quantize.shape for a rotation that `cols` is no multiple of, and those of quantize_rows.
Result<Matrix> quantize_vq(int64_t rows, int64_t cols, const VqOptions& options,
                           const RowReader& read_row, Executor& pool);

/// Rows of `read_row` rotated in runs of `rotation`. Runs with what is not finite stay as they are,
/// so that messages name what was there.
RowReader rotated_rows(const RowReader& read_row, int64_t cols, int64_t rotation);

}  // namespace subbyte
