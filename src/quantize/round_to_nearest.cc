#include "quantize/round_to_nearest.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

#include "quantize/quantize_rows.h"

namespace subbyte {
namespace {

constexpr uint32_t kF16One = 0x3C00;
constexpr uint32_t kF16Smallest = 0x0001;

/// f16 code of a scale for a group whose values span `range` in `q_max` steps.
uint32_t scale_code(double range, int q_max) {
  if (range == 0) return kF16One;
  return std::max(info(Format::kF16).encode(range / q_max, Rounding::kNearestEven), kF16Smallest);
}

/// `value` / `scale` as an integer, ties to even. Quotients may be far outside of the codes when a
/// scale was raised to the smallest f16, or not finite when it overflowed: no int before a clamp.
double round_quotient(double value, double scale) {
  return std::nearbyint(value / scale);
}

void min_max_group(std::span<const float> weights, int q_max, GroupCodes& group) {
  double low = 0;
  double high = 0;
  for (const float weight : weights) {
    low = std::min<double>(low, weight);
    high = std::max<double>(high, weight);
  }
  group.scale = scale_code(high - low, q_max);
  const double scale = info(Format::kF16).decode(group.scale);
  const double zero = std::clamp<double>(round_quotient(-low, scale), 0, q_max);
  group.zero = static_cast<uint32_t>(zero);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double code = std::clamp<double>(round_quotient(weights[i], scale) + zero, 0, q_max);
    group.codes[i] = static_cast<uint8_t>(code);
  }
}

void symmetric_group(std::span<const float> weights, int q_max, GroupCodes& group) {
  double largest = 0;
  for (const float weight : weights) largest = std::max(largest, std::fabs(double{weight}));
  group.scale = scale_code(2 * largest, q_max);
  const double scale = info(Format::kF16).decode(group.scale);
  const double offset = (q_max + 1) / 2;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double code = std::clamp<double>(round_quotient(weights[i], scale) + offset, 0, q_max);
    group.codes[i] = static_cast<uint8_t>(code);
  }
}

/// uN or iN, "quantize.bits" where there is none.
Result<Format> integer_format(char kind, int bits) {
  if (bits >= 2 && bits <= 8) return find_format(kind + std::to_string(bits))->id;
  return Error{"quantize.bits", "expected 2 to 8 bits for a weight, found " + std::to_string(bits)};
}

}  // namespace

Result<Matrix> quantize_min_max(int64_t rows, int64_t cols, int64_t group_size, int bits,
                                const RowReader& read_row, Executor& pool) {
  SUBBYTE_TRY(const Format element, integer_format('u', bits));
  const int q_max = (1 << bits) - 1;
  // The kernels read zero points of 8-bit codes with 16 bits: GPTQ has 256.
  const Zero zero_format = bits == 8 ? Zero::kU16 : Zero::kU8;
  return quantize_rows({element, Format::kF16, zero_format, group_size}, rows, cols, read_row, pool,
                       [q_max](std::span<const float> weights, GroupCodes& group) {
                         min_max_group(weights, q_max, group);
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
