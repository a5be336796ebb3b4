#include "quantize/nvfp4.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "quantize/e2m1_codes.h"
#include "quantize/quantize_rows.h"

namespace subbyte {
namespace {

constexpr int64_t kBlock = 16;
constexpr double kLargestElement = 6;
constexpr double kLargestScale = 448;
constexpr double kLargestScaleOfSearch = 256;  // 384, half as large again, is a number of e4m3

/// The factor by which `largest` becomes the largest element with the largest scale, as a float or
/// one divided by a float.
double factor_for(double largest, const Nvfp4Options& options) {
  constexpr double kMax = std::numeric_limits<float>::max();
  constexpr double kLeast = std::numeric_limits<float>::denorm_min();
  const double range =
      kLargestElement * (options.four_over_six ? kLargestScaleOfSearch : kLargestScale);
  if (largest == 0 || !std::isfinite(largest)) return 1;
  const bool divides = options.factor == TensorFactor::kDivides;
  const double stored = divides ? range / largest : largest / range;
  const double number = static_cast<float>(std::clamp(stored, kLeast, kMax));
  return divides ? 1 / number : number;
}

/// The scale under which the largest number of a block becomes `element`: at least the smallest, so
/// that a block that is not zero does not become so for its scale.
uint32_t scale_code(double largest, double element, double factor) {
  const FormatInfo& scale = info(Format::kE4M3);
  const double wanted = std::min(largest / element / factor, kLargestScale);
  return std::max<uint32_t>(scale.encode(wanted, Rounding::kNearestEven), 1);
}

void nvfp4_group(std::span<const float> weights, double factor, bool four_over_six,
                 GroupCodes& group) {
  const FormatInfo& scale = info(Format::kE4M3);
  const double largest = largest_magnitude(weights);
  if (largest == 0) {  // the codes are still those of another group
    group.scale = scale.encode(1, Rounding::kNearestEven);
    std::ranges::fill(group.codes, uint8_t{0});
    return;
  }
  const auto step = [&](uint32_t code) { return scale.decode(code) * factor; };
  group.scale = scale_code(largest, kLargestElement, factor);
  if (!four_over_six) {
    encode_e2m1(weights, step(group.scale), group.codes);
    return;
  }
  const uint32_t other = scale_code(largest, 4, factor);
  E2m1Trials<kBlock> trials = {.scales = {step(group.scale), step(other)}};
  if (encode_e2m1_better(weights, trials, group.codes) == 1) group.scale = other;
}

}  // namespace

Result<Matrix> quantize_nvfp4(int64_t rows, int64_t cols, const Nvfp4Options& options,
                              const RowReader& read_row, Executor& pool) {
  double largest = options.largest;
  if (largest == 0 && rows > 0 && cols > 0) largest = largest_magnitude(rows, cols, read_row, pool);
  const double factor = factor_for(largest, options);
  auto matrix = quantize_rows(
      {Format::kE2M1, Format::kE4M3, Zero::kNone, kBlock}, rows, cols, read_row, pool,
      [factor, search = options.four_over_six](std::span<const float> weights, GroupCodes& group) {
        nvfp4_group(weights, factor, search, group);
      });
  if (matrix.ok()) matrix->view.tensor_scale = factor;
  return matrix;
}

}  // namespace subbyte
