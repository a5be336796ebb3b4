#include "quantize/mxfp4.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "quantize/e2m1_codes.h"
#include "quantize/quantize_rows.h"

namespace subbyte {
namespace {

constexpr int64_t kBlock = 32;
constexpr WeightFormat kFormat = {Format::kE2M1, Format::kE8M0, Zero::kNone, kBlock};

void mxfp4_group(std::span<const float> weights, ScaleRule rule, Rounding rounding,
                 GroupCodes& group) {
  const FormatInfo& element = info(Format::kE2M1);
  group.scale = shared_exponent(largest_magnitude(weights), element, rule);
  const double scale = info(Format::kE8M0).decode(group.scale);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    group.codes[i] = static_cast<uint8_t>(element.encode(weights[i] / scale, rounding));
  }
}

/// Scales are powers of two, so that products with them are exact.
void least_error_group(std::span<const float> weights, GroupCodes& group) {
  const FormatInfo& exponent = info(Format::kE8M0);
  group.scale = shared_exponent(largest_magnitude(weights), info(Format::kE2M1), ScaleRule::kCeil);
  const double scale = exponent.decode(group.scale);
  if (group.scale == 0) {
    encode_e2m1(weights, scale, group.codes);
    return;
  }
  E2m1Trials<kBlock> trials = {.scales = {scale, exponent.decode(group.scale - 1)}};
  group.scale -= static_cast<uint32_t>(encode_e2m1_better(weights, trials, group.codes));
}

}  // namespace

Result<Matrix> quantize_mxfp4(int64_t rows, int64_t cols, ScaleRule rule, Rounding rounding,
                              const RowReader& read_row, Executor& pool) {
  return quantize_rows(kFormat, rows, cols, read_row, pool,
                       [rule, rounding](std::span<const float> weights, GroupCodes& group) {
                         mxfp4_group(weights, rule, rounding, group);
                       });
}

Result<Matrix> quantize_mxfp4(int64_t rows, int64_t cols, const RowReader& read_row,
                              Executor& pool) {
  return quantize_rows(kFormat, rows, cols, read_row, pool, least_error_group);
}

}  // namespace subbyte
