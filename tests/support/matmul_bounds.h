#pragma once
// How far the results of a method may be from products in double precision.

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"
#include "support/compare.h"
#include "support/matmul.h"

namespace subbyte::testing {

/// Formats whose codes, or whose weights if they are dense, bf16 holds, of kbit 2 after a change of
/// scale that only dot_decoders.inl.h makes.
inline bool has_exact_pairs(Format element) {
  switch (element) {
    case Format::kU2:
    case Format::kU3:
    case Format::kU4:
    case Format::kE2M1:
    case Format::kNFL2:
    case Format::kBF16:
      return true;
    default:
      return false;
  }
}

/// The largest magnitude of its `size` neighbours for each input.
inline std::vector<float> local_maxima(const std::vector<float>& x, int64_t cols, int64_t size) {
  std::vector<float> maxima(x.size());
  for (std::size_t row = 0; row < x.size(); row += cols) {
    for (int64_t k = 0; k < cols; ++k) {
      for (int64_t i = k / size * size; i < std::min(k / size * size + size, cols); ++i) {
        maxima[row + k] = std::max(maxima[row + k], std::fabs(x[row + i]));
      }
    }
  }
  return maxima;
}

/// Products in double precision, and what they would be were every activation the largest of its
/// octet, of its 32, or of its block of 128.
struct Expected {
  Oracle exact;
  Oracle octets;
  Oracle quads;
  Oracle blocks;
  int64_t groups;  // of a row of weights
  Format element;
  double passes;  // over a block of digit_codes.inl.h, at most
};
inline Expected expect(const MatrixView& weights, const std::vector<float>& x, int64_t m) {
  return {multiply_in_double(weights, x, m),
          multiply_in_double(weights, local_maxima(x, weights.cols, 8), m),
          multiply_in_double(weights, local_maxima(x, weights.cols, 32), m),
          multiply_in_double(weights, local_maxima(x, weights.cols, 128), m),
          weights.groups(),
          weights.format.element,
          weights.format.element == Format::kE2M1 ? 4.0 : 1.0};
}

/// group_tiles.inl.h, or tiles.inl.h with the same order of inputs.
inline double group_tiles_rounding(const cpu::Method& method, double k) {
  if (std::string_view(method.name).ends_with("group tiles")) {
    return rounding_bound(std::ceil(k / 32) + 10 + 64 * method.weight_terms);
  }
  return rounding_bound(k + std::ceil(k / 128) + 5);
}

/// The roundings of one product relative to sum |w| |x|, by the formulas at the top of the
/// mainloops in kernels/cpu/generic/. Groups end spans of dot_panels.inl.h.
inline double relative_bound(const cpu::Kernels& kernels, const cpu::Method& method, int64_t cols,
                             const Expected& expected) {
  const double lanes = kernels.lanes;
  const auto k = static_cast<double>(cols);
  const auto groups = static_cast<double>(expected.groups);
  const double fma = kernels.lanes == 1 ? 2 : 1;
  const double levels = std::log2(lanes);
  const double blocks = std::ceil(k / (8 * lanes));
  const bool exact_pairs = has_exact_pairs(expected.element);
  switch (method.order) {
    case cpu::ActivationOrder::kDotPairs:
      return (exact_pairs ? 0x1.02p-8 : 0x1.02p-7) + rounding_bound(k + blocks + groups + 30);
    case cpu::ActivationOrder::kDotBytes:
      return rounding_bound(std::ceil(k / 32) + groups + 10);
    case cpu::ActivationOrder::kDotDigits:
    case cpu::ActivationOrder::kDotShortDigits:
      return 3.02 * rounding_bound(blocks + groups + 10);
    case cpu::ActivationOrder::kSplitPairs:
      return 0x1.02p-16 + 0x1p-17 + rounding_bound(29 + blocks + levels);
    case cpu::ActivationOrder::kTiles:
      return (expected.element == Format::kE2M1 ? 0x1.02p-8 : 0x1.02p-7) +
             rounding_bound(k + blocks + 4);
    case cpu::ActivationOrder::kFollowingTiles:
      return (exact_pairs && expected.element != Format::kNFL2 ? 0x1.02p-8 : 0x1.02p-7) +
             group_tiles_rounding(method, k);
    case cpu::ActivationOrder::kSplitFollowingTiles:
      return (method.weight_terms == 2 ? 0x1.02p-16 : 0x1.02p-17) + group_tiles_rounding(method, k);
    case cpu::ActivationOrder::kSplitTiles:
      // Weights of two terms have as many bits as activations, and twice as many products.
      if (method.weight_terms == 2) return 0x1.02p-15 + rounding_bound(2 * k + blocks + 5);
      return 0x1.02p-16 + rounding_bound(k + blocks + 5);
    case cpu::ActivationOrder::kDigitTiles:
    case cpu::ActivationOrder::kShortDigitTiles:
      return 3.02 * rounding_bound(expected.passes * blocks + 5);
    case cpu::ActivationOrder::kWideDigitTiles:
      return 3.02 * rounding_bound(expected.passes * blocks + 7);
    case cpu::ActivationOrder::kThreeBytes:
      return rounding_bound(6 + blocks + levels);
    default:
      break;
  }
  if (std::string_view(method.name).starts_with("rows")) {
    return rounding_bound(19 + 8 * (fma - 1) + fma * blocks + levels);
  }
  return rounding_bound(5 + fma * std::ceil(k / lanes) + levels + std::ceil(k / 1024));
}

/// Half a step of an activation for those that are integers under one scale for their octet, quad
/// of octets or block, relative to the largest there; 0 for others.
inline double half_step(const cpu::Method& method) {
  switch (method.order) {
    case cpu::ActivationOrder::kDotBytes:
      return 1.001 / 254;
    case cpu::ActivationOrder::kThreeBytes:
      return 0x1.02p-23;
    case cpu::ActivationOrder::kDigitTiles:
    case cpu::ActivationOrder::kWideDigitTiles:
    case cpu::ActivationOrder::kDotDigits:
      return 0x1p-22;
    case cpu::ActivationOrder::kShortDigitTiles:
    case cpu::ActivationOrder::kDotShortDigits:
      return 0x1p-14;
    default:
      return 0;
  }
}

/// What inputs share a step with.
inline const Oracle& local_oracle(const cpu::Method& method, const Expected& expected) {
  switch (method.order) {
    case cpu::ActivationOrder::kDigitTiles:
    case cpu::ActivationOrder::kWideDigitTiles:
    case cpu::ActivationOrder::kShortDigitTiles:
    case cpu::ActivationOrder::kDotDigits:
    case cpu::ActivationOrder::kDotShortDigits:
      return expected.blocks;
    case cpu::ActivationOrder::kDotBytes:
      return expected.quads;
    default:
      return expected.octets;
  }
}

/// How far each result may be from the exact one.
inline std::vector<double> bounds_of(const cpu::Kernels& kernels, const cpu::Method& method,
                                     const Expected& expected, int64_t cols) {
  const double g = relative_bound(kernels, method, cols, expected);
  const double step = half_step(method);
  const std::vector<double>& local = local_oracle(method, expected).magnitude;
  std::vector<double> bounds(expected.exact.magnitude.size());
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    // The rounded activations, which may be larger by a step, meet the roundings of the sums.
    bounds[i] = g * (expected.exact.magnitude[i] + 2 * step * local[i]) + step * local[i];
  }
  return bounds;
}

}  // namespace subbyte::testing
