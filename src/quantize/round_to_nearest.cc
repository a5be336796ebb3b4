#include "quantize/round_to_nearest.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

#include "quantize/quantize_rows.h"
#include "quantize/wide.h"

namespace subbyte {
namespace {

constexpr uint32_t kF16One = 0x3C00;
constexpr uint32_t kF16Smallest = 0x0001;

/// f16 code of a scale for a group whose values span `range` in `q_max` steps.
uint32_t scale_code(double range, int q_max) {
  if (range == 0) return kF16One;
  return std::max(info(Format::kF16).encode(range / q_max, Rounding::kNearestEven), kF16Smallest);
}

// Weights are taken in runs of this length, a lane each: the compiler makes vectors of them.
constexpr std::size_t kRun = 8;

/// `value` / `scale` as an integer, ties to even. Quotients may be far outside of the codes when a
/// scale was raised to the smallest f16, or when it overflowed: they are cut to +-2^20 first.
[[gnu::always_inline]] inline double round_quotient(double value, double scale) {
  constexpr double kFar = 0x1p20;
  constexpr double kInteger = 0x1.8p52;  // numbers of this size have no fraction
  double quotient = value / scale;
  quotient = quotient < -kFar ? -kFar : quotient;
  quotient = quotient > kFar ? kFar : quotient;
  return (quotient + kInteger) - kInteger;
}

/// clamp(round(weight / scale) + offset, 0, q_max)
[[gnu::always_inline]] inline uint8_t code_of(float weight, double scale, double offset,
                                              double q_max) {
  double code = round_quotient(weight, scale) + offset;
  code = code < 0 ? 0 : code;
  code = code > q_max ? q_max : code;
  return static_cast<uint8_t>(static_cast<int32_t>(code));
}

[[gnu::always_inline]] inline void encode(std::span<const float> weights, double scale,
                                          double offset, double q_max, std::span<uint8_t> codes) {
  std::size_t i = 0;
  for (; i + kRun <= weights.size(); i += kRun) {
    const float* from = weights.data() + i;
    uint8_t* to = codes.data() + i;
    for (std::size_t lane = 0; lane < kRun; ++lane) {
      to[lane] = code_of(from[lane], scale, offset, q_max);
    }
  }
  for (; i < weights.size(); ++i) codes[i] = code_of(weights[i], scale, offset, q_max);
}

struct Range {
  double low = 0;
  double high = 0;
};

/// The range of the weights, with 0 inside.
Range range_of(std::span<const float> weights) {
  float low[kRun] = {};
  float high[kRun] = {};
  std::size_t i = 0;
  for (; i + kRun <= weights.size(); i += kRun) {
    for (std::size_t lane = 0; lane < kRun; ++lane) {
      const float weight = weights[i + lane];
      low[lane] = weight < low[lane] ? weight : low[lane];
      high[lane] = weight > high[lane] ? weight : high[lane];
    }
  }
  for (; i < weights.size(); ++i) {
    low[0] = std::min(low[0], weights[i]);
    high[0] = std::max(high[0], weights[i]);
  }
  return {*std::min_element(low, low + kRun), *std::max_element(high, high + kRun)};
}

void min_max_group(std::span<const float> weights, int q_max, int least_zero, GroupCodes& group) {
  const Range range = range_of(weights);
  group.scale = scale_code(range.high - range.low, q_max);
  double scale = info(Format::kF16).decode(group.scale);
  double zero = std::clamp<double>(round_quotient(-range.low, scale), 0, q_max);
  if (zero < least_zero) {
    group.scale = scale_code(range.high, q_max - least_zero);
    scale = info(Format::kF16).decode(group.scale);
    zero = least_zero;
  }
  group.zero = static_cast<uint32_t>(zero);
  run_wide<encode>(weights, scale, zero, q_max, group.codes);
}

void symmetric_group(std::span<const float> weights, int q_max, GroupCodes& group) {
  const Range range = range_of(weights);
  group.scale = scale_code(2 * std::max(range.high, -range.low), q_max);
  const double scale = info(Format::kF16).decode(group.scale);
  run_wide<encode>(weights, scale, (q_max + 1) / 2, q_max, group.codes);
}

/// uN or iN, "quantize.bits" where there is none.
Result<Format> integer_format(char kind, int bits) {
  if (bits >= 2 && bits <= 8) return *find_format(kind + std::to_string(bits));
  return Error{"quantize.bits", "expected 2 to 8 bits for a weight, found " + std::to_string(bits)};
}

}  // namespace

Result<Matrix> quantize_min_max(int64_t rows, int64_t cols, int64_t group_size, int bits,
                                const RowReader& read_row, Executor& pool, int least_zero) {
  SUBBYTE_TRY(const Format element, integer_format('u', bits));
  const int q_max = (1 << bits) - 1;
  // The kernels read zero points of 8-bit codes with 16 bits: GPTQ has 256.
  const Zero zero_format = bits == 8 ? Zero::kU16 : Zero::kU8;
  return quantize_rows({element, Format::kF16, zero_format, group_size}, rows, cols, read_row, pool,
                       [q_max, least_zero](std::span<const float> weights, GroupCodes& group) {
                         min_max_group(weights, q_max, least_zero, group);
                       });
}

Result<Matrix> quantize_symmetric(int64_t rows, int64_t cols, int64_t group_size, int bits,
                                  const RowReader& read_row, Executor& pool) {
  SUBBYTE_TRY(const Format element, integer_format('i', bits));
  const int q_max = (1 << bits) - 1;
  return quantize_rows({element, Format::kF16, Zero::kNone, group_size}, rows, cols, read_row, pool,
                       [q_max](std::span<const float> weights, GroupCodes& group) {
                         symmetric_group(weights, q_max, group);
                       });
}

}  // namespace subbyte
