#pragma once
// Numbers to the nearest entry of a codebook, many at a time: the code of x is how many thresholds
// lie below x. That is a loop without branches, of which the compiler makes vectors.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>

#include "quantize/wide.h"

namespace subbyte {

class CodebookEncoder {
 public:
  /// `values` are strictly increasing, at most 32.
  explicit CodebookEncoder(std::span<const float> values)
      : num_thresholds_(static_cast<int>(values.size()) - 1) {
    for (int i = 0; i < num_thresholds_; ++i) {
      thresholds_[i] = last_of_lower(values[i], values[i + 1]);
    }
  }

  /// Numbers at or below entry i have a code of at most i.
  std::span<const float> thresholds() const {
    return std::span(thresholds_).first(static_cast<std::size_t>(num_thresholds_));
  }

  /// Writes the code of x[i] / divisor, rounded to a float, to codes[i]. Of two entries whose
  /// distances are the same float the lower is taken. No quotient is NaN.
  void encode(std::span<const float> x, float divisor, std::span<uint8_t> codes) const {
    may_use_avx2() ? encode_wide(x, divisor, codes) : encode_plain(x, divisor, codes);
  }

 private:
  SUBBYTE_FOR_AVX2 void encode_wide(std::span<const float> x, float divisor,
                                    std::span<uint8_t> codes) const {
    encode_in_runs(x, divisor, codes);
  }
  void encode_plain(std::span<const float> x, float divisor, std::span<uint8_t> codes) const {
    encode_in_runs(x, divisor, codes);
  }
  [[gnu::always_inline]] void encode_in_runs(std::span<const float> x, float divisor,
                                             std::span<uint8_t> codes) const {
    constexpr std::size_t kRun = 32;
    for (std::size_t first = 0; first < x.size(); first += kRun) {
      const std::size_t count = std::min(kRun, x.size() - first);
      std::array<float, kRun> quotients{};
      std::array<int32_t, kRun> sums{};
      for (std::size_t i = 0; i < count; ++i) quotients[i] = x[first + i] / divisor;
      for (int t = 0; t < num_thresholds_; ++t) {
        for (std::size_t i = 0; i < kRun; ++i) sums[i] += quotients[i] > thresholds_[t] ? 1 : 0;
      }
      for (std::size_t i = 0; i < count; ++i) codes[first + i] = static_cast<uint8_t>(sums[i]);
    }
  }

  /// Floats in their order as integers.
  static int32_t rank(float value) {
    const auto bits = std::bit_cast<int32_t>(value);
    return bits < 0 ? static_cast<int32_t>(0x80000000u - static_cast<uint32_t>(bits)) : bits;
  }
  static float of_rank(int32_t rank) {
    return std::bit_cast<float>(
        rank < 0 ? static_cast<int32_t>(0x80000000u - static_cast<uint32_t>(rank)) : rank);
  }

  /// The largest float that is no nearer to `upper` than to `lower`, in float arithmetic.
  static float last_of_lower(float lower, float upper) {
    int64_t low = rank(lower);
    int64_t high = rank(upper);
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      const float x = of_rank(static_cast<int32_t>(middle));
      (x - lower <= upper - x ? low : high) = middle;
    }
    return of_rank(static_cast<int32_t>(low));
  }

  int num_thresholds_;
  std::array<float, 31> thresholds_{};
};

}  // namespace subbyte
