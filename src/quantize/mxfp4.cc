#include "quantize/mxfp4.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "quantize/quantize_rows.h"

namespace subbyte {
namespace {

constexpr int64_t kBlock = 32;

void mxfp4_group(std::span<const float> weights, ScaleRule rule, Rounding rounding,
                 GroupCodes& group) {
  const FormatInfo& element = info(Format::kE2M1);
  double largest = 0;
  for (const float weight : weights) largest = std::max(largest, std::fabs(double{weight}));
  group.scale = shared_exponent(largest, element, rule);
  const double scale = info(Format::kE8M0).decode(group.scale);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    group.codes[i] = static_cast<uint8_t>(element.encode(weights[i] / scale, rounding));
  }
}

}  // namespace

Result<Matrix> quantize_mxfp4(int64_t rows, int64_t cols, ScaleRule rule, Rounding rounding,
                              const RowReader& read_row, Executor& pool) {
  return quantize_rows({Format::kE2M1, Format::kE8M0, Zero::kNone, kBlock}, rows, cols, read_row,
                       pool, [rule, rounding](std::span<const float> weights, GroupCodes& group) {
                         mxfp4_group(weights, rule, rounding, group);
                       });
}

}  // namespace subbyte
