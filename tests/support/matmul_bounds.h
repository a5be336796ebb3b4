#pragma once
// How far the results of a variant may be from products in double precision.

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
inline bool has_exact_bf16(Format element) {
  switch (element) {
    case Format::kU2:
    case Format::kU3:
    case Format::kU4:
    case Format::kI2:
    case Format::kI3:
    case Format::kI4:
    case Format::kE2M1:
    case Format::kNFL2:
    case Format::kIQ4:
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
    for (int64_t first = 0; first < cols; first += size) {
      const int64_t end = std::min(first + size, cols);
      float largest = 0;
      for (int64_t k = first; k < end; ++k) largest = std::max(largest, std::fabs(x[row + k]));
      std::fill_n(maxima.begin() + row + first, end - first, largest);
    }
  }
  return maxima;
}

/// Products in double precision, and what they would be were every activation the largest of its
/// run of 8, of its 32, or of its block of 128.
struct Expected {
  Oracle exact;
  Oracle k8;
  Oracle k32;
  Oracle blocks;
  int64_t groups;  // of a row of weights
  Format element;
  bool exact_bf16;  // of the format's own codebook
  double passes;    // over a block of int8_codes.inl.h, at most
  double of_zeros;  // roundings of zero points that are made of offsets
};
inline Expected expect(const MatrixView& weights, const std::vector<float>& x, int64_t m) {
  return {multiply_in_double(weights, x, m),
          multiply_in_double(weights, local_maxima(x, weights.cols, 8), m),
          multiply_in_double(weights, local_maxima(x, weights.cols, 32), m),
          multiply_in_double(weights, local_maxima(x, weights.cols, 128), m),
          weights.groups(),
          weights.format.element,
          has_exact_bf16(weights.format.element) && weights.codebook.empty(),
          weights.format.element == Format::kE2M1 ? 4.0 : 1.0,
          is_offset(weights.format.zero) ? 2.0 : 0.0};
}

/// What the shape gives to the bounds.
struct BoundTerms {
  double k;
  double blocks;  // of 8 * lanes inputs
  double groups;
  double levels;  // additions over the lanes of a vector
  double lanes;
  double fma;  // roundings of one
  double passes;
  double weight_splits;
  bool exact_bf16;  // bf16 holds the codes, or dense weights
  Format element;
};

/// A loop, as far as tests must know it: one entry for each name of a variant.
struct Loop {
  std::string_view name;
  /// The roundings of one product relative to sum |w| |x|, by the formula at the head of the loop.
  double (*relative)(const BoundTerms& terms);
  /// Half a step of an activation for those that are integers under one scale for that many
  /// neighbours, relative to the largest of them.
  double half_step = 0;
  int64_t neighbours = 8;
  /// Activations have 8 bits: as integers, or as bf16. A code that is off by one hides after them.
  bool takes_bytes = false;
  bool takes_bf16 = false;
  /// Each row of activations is multiplied by itself.
  bool rows_alone = false;
  /// Weights become bf16, scales included, of which subnormal ones count as zero.
  bool rounds_weights = false;
  bool flushes_weights = false;
  /// An infinite scale meets a lo part, or a limb, of zero.
  bool infinity_is_nan = false;
};

inline constexpr Loop kLoops[] = {
    {.name = "gemv/f32",
     .relative =
         [](const BoundTerms& t) {
           return rounding_bound(19 + 8 * (t.fma - 1) + t.fma * t.blocks + t.levels);
         },
     .rows_alone = true},
    {.name = "gemv/int8x3",
     .relative = [](const BoundTerms& t) { return rounding_bound(6 + t.blocks + t.levels); },
     .half_step = 0x1.02p-23,
     .rows_alone = true},
    {.name = "gemv/int8",
     .relative = [](const BoundTerms& t) { return rounding_bound(6 + 2 * t.blocks + t.levels); },
     .half_step = 1.001 / 254,
     .neighbours = 32,
     .takes_bytes = true,
     .rows_alone = true},
    {.name = "gemv/int8-k32",
     .relative = [](const BoundTerms& t) { return rounding_bound(6 + 2 * t.blocks + t.levels); },
     .half_step = 1.001 / 254,
     .neighbours = 32,
     .takes_bytes = true,
     .rows_alone = true},
    {.name = "gemv/hi-lo",
     .relative =
         [](const BoundTerms& t) {
           return 0x1.02p-16 + 0x1p-17 + rounding_bound(29 + t.blocks + t.levels);
         },
     .rows_alone = true},
    {.name = "gemm/f32",
     .relative =
         [](const BoundTerms& t) {
           return rounding_bound(5 + t.fma * std::ceil(t.k / t.lanes) + t.levels +
                                 std::ceil(t.k / 1024));
         }},
    // Groups end spans of dot_panels.inl.h.
    {.name = "dot_gemm/int8",
     .relative =
         [](const BoundTerms& t) { return rounding_bound(std::ceil(t.k / 32) + t.groups + 10); },
     .half_step = 1.001 / 254,
     .neighbours = 32,
     .takes_bytes = true},
    {.name = "dot_gemm/int8x3",
     .relative =
         [](const BoundTerms& t) { return 3.02 * rounding_bound(t.blocks + t.groups + 10); },
     .half_step = 0x1p-22,
     .neighbours = 128,
     .infinity_is_nan = true},
    {.name = "dot_gemm/int8x2",
     .relative =
         [](const BoundTerms& t) { return 3.02 * rounding_bound(t.blocks + t.groups + 10); },
     .half_step = 0x1p-14,
     .neighbours = 128,
     .infinity_is_nan = true},
    {.name = "dot_gemm/bf16",
     .relative =
         [](const BoundTerms& t) {
           return (t.exact_bf16 ? 0x1.02p-8 : 0x1.02p-7) +
                  rounding_bound(t.k + t.blocks + t.groups + 30);
         },
     .takes_bf16 = true},
    {.name = "few_rows/int8x3",
     .relative = [](const BoundTerms& t) { return 3.02 * rounding_bound(t.passes * t.blocks + 5); },
     .half_step = 0x1p-22,
     .neighbours = 128},
    {.name = "few_rows/int8x3-wide",
     .relative = [](const BoundTerms& t) { return 3.02 * rounding_bound(t.passes * t.blocks + 7); },
     .half_step = 0x1p-22,
     .neighbours = 128},
    {.name = "few_rows/int8x2",
     .relative = [](const BoundTerms& t) { return 3.02 * rounding_bound(t.passes * t.blocks + 5); },
     .half_step = 0x1p-14,
     .neighbours = 128},
    {.name = "few_rows/bf16",
     .relative =
         [](const BoundTerms& t) {
           return (t.exact_bf16 && t.element != Format::kNFL2 ? 0x1.02p-8 : 0x1.02p-7) +
                  rounding_bound(std::ceil(t.k / 32) + 10 + 64 * t.weight_splits);
         },
     .takes_bf16 = true},
    {.name = "few_rows/hi-lo",
     .relative =
         [](const BoundTerms& t) {
           return (t.weight_splits == 2 ? 0x1.02p-16 : 0x1.02p-17) +
                  rounding_bound(std::ceil(t.k / 32) + 10 + 64 * t.weight_splits);
         },
     .infinity_is_nan = true},
    {.name = "many_rows/bf16",
     .relative =
         [](const BoundTerms& t) {
           const bool exact = t.element == Format::kE2M1 || t.element == Format::kBF16;
           return (exact ? 0x1.02p-8 : 0x1.02p-7) + rounding_bound(t.k + t.blocks + 4);
         },
     .takes_bf16 = true,
     .rounds_weights = true,
     .flushes_weights = true},
    {.name = "many_rows/hi-lo",
     .relative =
         [](const BoundTerms& t) { return 0x1.02p-17 + rounding_bound(t.k + t.blocks + 5); }},
    // Weights of two bf16 have as many bits as activations, and twice as many products.
    {.name = "many_rows/both-hi-lo",
     .relative =
         [](const BoundTerms& t) { return 0x1.02p-15 + rounding_bound(2 * t.k + t.blocks + 5); },
     .flushes_weights = true,
     .infinity_is_nan = true},
};

inline const Loop& loop_of(const cpu::KernelVariant& variant) {
  static constexpr Loop kUnknown = {.name = "", .relative = [](const BoundTerms&) { return 0.0; }};
  for (const Loop& loop : kLoops) {
    if (loop.name == variant.name) return loop;
  }
  ADD_FAILURE() << "tests/support/matmul_bounds.h: no bound for \"" << variant.name << '"';
  return kUnknown;
}

/// The roundings of one product relative to sum |w| |x|.
inline double relative_bound(const cpu::Kernels& kernels, const cpu::KernelVariant& variant,
                             int64_t cols, const Expected& expected) {
  const double lanes = kernels.lanes;
  const auto k = static_cast<double>(cols);
  const double of_zeros = rounding_bound(expected.of_zeros);
  return of_zeros +
         loop_of(variant).relative({.k = k,
                                    .blocks = std::ceil(k / (8 * lanes)),
                                    .groups = static_cast<double>(expected.groups),
                                    .levels = std::log2(lanes),
                                    .lanes = lanes,
                                    .fma = kernels.lanes == 1 ? 2.0 : 1.0,
                                    .passes = expected.passes,
                                    .weight_splits = static_cast<double>(variant.weight_splits),
                                    .exact_bf16 = expected.exact_bf16,
                                    .element = expected.element});
}

/// How far each result may be from the exact one.
inline std::vector<double> bounds_of(const cpu::Kernels& kernels, const cpu::KernelVariant& variant,
                                     const Expected& expected, int64_t cols) {
  const Loop& loop = loop_of(variant);
  const double g = relative_bound(kernels, variant, cols, expected);
  const Oracle& local = loop.neighbours == 8    ? expected.k8
                        : loop.neighbours == 32 ? expected.k32
                                                : expected.blocks;
  std::vector<double> bounds(expected.exact.magnitude.size());
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    const double step = loop.half_step * local.magnitude[i];
    // The rounded activations, which may be larger by a step, meet the roundings of the sums.
    bounds[i] = g * (expected.exact.magnitude[i] + 2 * step) + step;
  }
  return bounds;
}

}  // namespace subbyte::testing
