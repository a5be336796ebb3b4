#include "quantize/nf4.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <span>

#include "quantize/quantize_rows.h"

namespace subbyte {
namespace {

/// Code i is the nearest up to and with bound i.
using Bounds = std::array<double, 15>;

Bounds middles() {
  const FormatInfo& element = info(Format::kNF4);
  Bounds bounds;
  for (uint32_t i = 0; i < bounds.size(); ++i) {
    bounds[i] = (element.decode(i) + element.decode(i + 1)) / 2;
  }
  return bounds;
}

void nf4_group(std::span<const float> weights, const Bounds& bounds, GroupCodes& group) {
  float largest = 0;
  for (const float weight : weights) largest = std::max(largest, std::fabs(weight));
  if (largest == 0) largest = 1;
  group.scale = std::bit_cast<uint32_t>(largest);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double value = weights[i] / double{largest};
    int code = 0;
    for (const double bound : bounds) code += value > bound ? 1 : 0;
    group.codes[i] = static_cast<uint8_t>(code);
  }
}

}  // namespace

Result<Matrix> quantize_nf4(int64_t rows, int64_t cols, int64_t block, const RowReader& read_row,
                            Executor& pool) {
  return quantize_rows({Format::kNF4, Format::kF32, Zero::kNone, block}, rows, cols, read_row, pool,
                       [bounds = middles()](std::span<const float> weights, GroupCodes& group) {
                         nf4_group(weights, bounds, group);
                       });
}

}  // namespace subbyte
