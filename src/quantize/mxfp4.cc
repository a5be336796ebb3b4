#include "quantize/mxfp4.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "quantize/e2m1_codes.h"
#include "quantize/quantize_rows.h"

namespace subbyte {
namespace {

constexpr int64_t kBlock = 32;
constexpr WeightFormat kFormat = {Format::kE2M1, Format::kE8M0, Zero::kNone, kBlock};

double largest_of(std::span<const float> weights) {
  double largest = 0;
  for (const float weight : weights) largest = std::max(largest, std::fabs(double{weight}));
  return largest;
}

void mxfp4_group(std::span<const float> weights, ScaleRule rule, Rounding rounding,
                 GroupCodes& group) {
  const FormatInfo& element = info(Format::kE2M1);
  group.scale = shared_exponent(largest_of(weights), element, rule);
  const double scale = info(Format::kE8M0).decode(group.scale);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    group.codes[i] = static_cast<uint8_t>(element.encode(weights[i] / scale, rounding));
  }
}

void least_error_group(std::span<const float> weights, GroupCodes& group) {
  const FormatInfo& exponent = info(Format::kE8M0);
  group.scale = shared_exponent(largest_of(weights), info(Format::kE2M1), ScaleRule::kCeil);
  const double errors = encode_e2m1(weights, exponent.decode(group.scale), group.codes);
  if (group.scale == 0) return;
  std::array<uint8_t, kBlock> codes;
  const double clipped = encode_e2m1(weights, exponent.decode(group.scale - 1), codes);
  if (clipped / 4 >= errors) return;  // in units of a scale that is half
  --group.scale;
  std::ranges::copy(codes, group.codes.begin());
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
