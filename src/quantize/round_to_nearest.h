#pragma once
// Round-to-nearest quantization to integers of 2 to 8 bits with an f16 scale for each group. With
// q_max = 2^bits - 1, "round" to the nearest integer, ties to even:
//
//   quantize_min_max     the range of the group, with 0 inside: lo = min(w, 0), hi = max(w, 0)
//     AutoAWQ, GPTQ      scale = (hi - lo) / q_max        stored as f16
//                        zero  = clamp(round(-lo / scale), 0, q_max)
//                        code  = clamp(round(w / scale) + zero, 0, q_max)
//                        w'    = (code - zero) * scale                       uN, zero u8
//                        (zero points of u8 are u16, as the kernels read them)
//
//   quantize_symmetric   scale = 2 * max|w| / q_max       stored as f16
//     GPTQ "sym"         code  = clamp(round(w / scale) + 2^(bits-1), 0, q_max)
//                        w'    = (code - 2^(bits-1)) * scale                 iN, no zero point
//
// Codes are computed with the stored scale, not with the one before its rounding to f16: that is
// the scale they will be multiplied by. A range that is tiny for f16 gets its smallest number,
// 2^-24. A group of zeros gets scale 1 and dequantizes to exact zeros.
//
// Errors stay within about half a step: (1/2 + q_max * 2^-11) * scale for scales that f16 holds as
// normal numbers. The second term is the part of the range that a scale rounded down cannot reach.

#include <cstdint>

#include "base/status.h"
#include "matrix/matrix.h"
#include "quantize/row_reader.h"
#include "subbyte/executor.h"

namespace subbyte {

/// `group_size` 0 is the whole row. Codes: quantize.bits (not 2 to 8), and those of quantize_rows:
/// quantize.shape, quantize.not_finite, quantize.scale_overflow (from (hi - lo) / q_max = 65520),
/// quantize.out_of_memory. `least_zero` is 0, or 1 for what cannot store a zero point of 0 (GPTQ,
/// version 1): groups without negative weights get 1 and a scale of hi / (q_max - 1) then.
Result<Matrix> quantize_min_max(int64_t rows, int64_t cols, int64_t group_size, int bits,
                                const RowReader& read_row, Executor& pool, int least_zero = 0);

/// The same but for zero points, of which there are none.
Result<Matrix> quantize_symmetric(int64_t rows, int64_t cols, int64_t group_size, int bits,
                                  const RowReader& read_row, Executor& pool);

}  // namespace subbyte
