#include "quantize/nf4.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <span>

#include "quantize/quantize_rows.h"
#include "quantize/wide.h"

namespace subbyte {
namespace {

constexpr std::size_t kRun = 16;  // weights that are encoded together

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

/// As many bounds as lie below each quotient; the rest of a run is not read by the caller.
[[gnu::always_inline]] inline void encode(const float* weights, double largest,
                                          const Bounds& bounds, uint8_t* codes) {
  std::array<double, kRun> quotients;
  std::array<int64_t, kRun> sums = {};
  for (std::size_t i = 0; i < kRun; ++i) quotients[i] = weights[i] / largest;
  for (const double bound : bounds) {
    for (std::size_t i = 0; i < kRun; ++i) sums[i] += quotients[i] > bound ? 1 : 0;
  }
  for (std::size_t i = 0; i < kRun; ++i) codes[i] = static_cast<uint8_t>(sums[i]);
}

void nf4_group(std::span<const float> weights, const Bounds& bounds, GroupCodes& group) {
  float largest = largest_magnitude(weights);
  if (largest == 0) largest = 1;
  group.scale = std::bit_cast<uint32_t>(largest);
  std::size_t i = 0;
  for (; i + kRun <= weights.size(); i += kRun) {
    run_wide<encode>(weights.data() + i, largest, bounds, group.codes.data() + i);
  }
  if (i == weights.size()) return;
  std::array<float, kRun> rest = {};
  std::array<uint8_t, kRun> codes = {};
  std::ranges::copy(weights.subspan(i), rest.begin());
  run_wide<encode>(rest.data(), largest, bounds, codes.data());
  std::copy_n(codes.begin(), weights.size() - i, group.codes.begin() + static_cast<int64_t>(i));
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
