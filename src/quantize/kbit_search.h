#pragma once
// What a block of kbit would lose with each of many scales: the middle of the search for the best.
//
//   error = sum over the block of (w - values[code] * divisor)^2, code = that of CodebookEncoder
//
// Products and differences are floats, squares and sums doubles, in the order of the weights. On
// AVX2 a lane is a scale, so that no sum crosses lanes, and the code comes out of the thresholds in
// as many steps as it has bits.

#include <array>
#include <span>

#include "quantize/codebook_encoder.h"

namespace subbyte {

class KbitSearch {
 public:
  static constexpr int kBlock = 32;
  /// Scales in three vectors, of which the second has the one that is best as a rule.
  static constexpr int kScales = 24;
  using Divisors = std::array<float, kScales>;
  using Errors = std::array<double, kScales>;

  /// `values` are strictly increasing, 4 to 32 of them; both outlive this.
  KbitSearch(std::span<const float> values, const CodebookEncoder& encoder);

  /// The errors of all divisors. Infinite where a divisor is 0, and for some that are larger than
  /// the least.
  Errors errors(std::span<const float, kBlock> weights, const Divisors& divisors) const;

  /// The same without AVX2.
  Errors plain_errors(std::span<const float, kBlock> weights, const Divisors& divisors) const;

 private:
  using Lanes = std::array<float, 8>;

  struct Tables {
    /// Thresholds that code bits i - 1 to 0 of the steps before choose from; the last one of 5 bits
    /// has 16, in two parts.
    std::array<Lanes, 6> thresholds = {};
    std::array<Lanes, 4> values = {};
  };

  template <int kBits>
  void wide_errors(std::span<const float, kBlock> weights, const Divisors& divisors,
                   Errors& errors) const;
  template <int kBits>
  static bool wide_vector(std::span<const float> weights, const float* divisors,
                          const Tables& tables, double bound, double* errors);

  std::span<const float> values_;
  const CodebookEncoder& encoder_;
  Tables tables_;
};

}  // namespace subbyte
