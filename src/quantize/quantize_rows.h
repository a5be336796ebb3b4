#pragma once
// The frame that all quantizers share: reads rows, refuses what is not finite, cuts rows into
// groups, packs codes, and spreads rows over threads. A quantizer adds what happens to one group.

#include <cstdint>
#include <functional>
#include <span>

#include "base/status.h"
#include "matrix/matrix.h"
#include "quantize/row_reader.h"
#include "subbyte/executor.h"

namespace subbyte {

/// One group. The quantizer fills codes, one byte for each weight, and the rest.
struct GroupCodes {
  std::span<uint8_t> codes;
  uint32_t scale = 0;  // a code of the scale's format
  uint32_t zero = 0;   // ignored where the format has no zero points
};

/// `weights` are finite. Called from several threads at a time.
using GroupQuantizer = std::function<void(std::span<const float> weights, GroupCodes& group)>;

/// A canonical matrix of `format`, whose elements have at most 8 bits. Each row is computed on its
/// own, so the result does not depend on the number of threads.
/// Codes: quantize.shape (sizes not positive, too large, or cols not a multiple of the group),
/// quantize.not_finite (an input), quantize.scale_overflow (a group's scale is not finite),
/// quantize.out_of_memory. Of several faults in the rows the first is reported.
Result<Matrix> quantize_rows(const WeightFormat& format, int64_t rows, int64_t cols,
                             const RowReader& read_row, Executor& pool,
                             const GroupQuantizer& quantize_group);

/// The largest |w|, NaN left out.
float largest_magnitude(std::span<const float> weights);

/// The largest |w| of a matrix, NaN left out: what formats with a factor for the whole matrix need
/// to know before the first group.
double largest_magnitude(int64_t rows, int64_t cols, const RowReader& read_row, Executor& pool);

}  // namespace subbyte
