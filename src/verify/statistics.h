#pragma once
// What a canonical matrix holds, counted: one pass over scales, zero points and codes.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "matrix/matrix.h"
#include "subbyte/executor.h"

namespace subbyte {

/// How many there are, and the index of the first.
struct Tally {
  int64_t count = 0;
  int64_t first = -1;

  void add(int64_t index);
  void add(const Tally& other);
};

/// Which codes of an element occur: bit c of word c / 64.
using CodeSet = std::array<uint64_t, 4>;

struct MatrixStatistics {
  int64_t num_weights = 0;
  int64_t num_rows = 0;

  // Indices count over [experts][rows][groups].
  int64_t num_scales = 0;
  Tally zero_scales;
  Tally negative_scales;
  Tally large_scales;  // of groups that may have weights beyond kLargestWeight
  uint32_t smallest_zero_point = UINT32_MAX;
  uint32_t largest_zero_point = 0;
  Tally zero_points_beyond;  // the largest code

  Tally dead_rows;  // all weights 0; indices over [experts][rows]
  // Weights of dense matrices; indices over [experts][rows][cols].
  Tally not_finite;
  Tally large;              // finite ones beyond kLargestWeight
  CodeSet used_codes = {};  // of matrices that are not dense

  /// Largest finite magnitude of dense matrices; of others the largest that an element could have
  /// with the scales that are there, without zero points.
  double largest = 0;
};

/// Told of the bytes of a dense matrix that are not read again, so that their pages may go.
using BytesRead = std::function<void(std::span<const std::byte>)>;

/// Counts those of all experts of a module, which have one format and one shape.
MatrixStatistics collect_statistics(std::span<const Matrix> experts, Executor& pool,
                                    const BytesRead& bytes_read = nullptr);

/// The largest number of F16. Larger ones are right in other types, and not for machines that
/// multiply in F16.
inline constexpr double kLargestWeight = 65504;
/// Two numbers beyond it have a product that is no float: what a bit of an exponent makes.
inline constexpr double kLargestFactor = 0x1p64;

/// Gives the code for numbers beyond kLargestWeight, the largest of which is `largest`.
inline std::string_view magnitude_code(double largest) {
  return largest > kLargestFactor ? "verify.magnitude" : "verify.beyond_f16";
}

struct NumberTallies {
  Tally not_finite;
  Tally large;  // finite, and beyond kLargestWeight
  Tally nonzero;
  uint32_t largest = 0;  // finite magnitude, as its code
};
/// Counts numbers of F16, BF16 or F32, which may lie at any address.
NumberTallies count_numbers(std::span<const std::byte> numbers, Format format, Executor& pool);

}  // namespace subbyte
