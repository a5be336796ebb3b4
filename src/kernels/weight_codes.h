#pragma once
// The arithmetic of the quantizers of weights (quantize/) for one group, to their bits: in double
// precision where they have it, each operation rounded once. GPUs run it; a test on the host holds
// it against the quantizers.
//
// A rule has for a group of weights from range.low to range.high, with 0 between, a scale and what
// its codes need (group), and the code of a weight (code). Rules that search have a second group
// (other) and the error of a weight under each. `factor` is the number for the whole matrix.

#include "kernels/block_codes.h"

namespace subbyte::weights {

SUBBYTE_BLOCK_FUNCTION uint64_t bits_of(double value) {
  return __builtin_bit_cast(uint64_t, value);
}
SUBBYTE_BLOCK_FUNCTION double of_bits(uint64_t bits) {
  return __builtin_bit_cast(double, bits);
}
SUBBYTE_BLOCK_FUNCTION double power_of_two(int exponent) {
  return of_bits(static_cast<uint64_t>(exponent + 1023) << 52);
}
SUBBYTE_BLOCK_FUNCTION double magnitude(double value) {
  return of_bits(bits_of(value) & ~(uint64_t{1} << 63));
}
SUBBYTE_BLOCK_FUNCTION uint32_t sign_of(double value) {
  return static_cast<uint32_t>(bits_of(value) >> 63);
}

/// sum + value^2, rounded twice.
SUBBYTE_BLOCK_FUNCTION double add_square(double sum, double value) {
#ifdef __CUDA_ARCH__
  return __dadd_rn(sum, __dmul_rn(value, value));
#else
  return sum + value * value;
#endif
}

SUBBYTE_BLOCK_FUNCTION double fma_of(double a, double b, double c) {
#ifdef __CUDA_ARCH__
  return __fma_rn(a, b, c);
#else
  return __builtin_fma(a, b, c);
#endif
}

/// a / b as a division rounds it, but for the sign of 0, with `inverse` = 1 / b, rounded; a and b
/// are far from where exponents end. Markstein's theorem: a quotient that is off by less than a
/// unit in its last place, as it is after one correction, is rounded by the second.
SUBBYTE_BLOCK_FUNCTION double divide(double a, double b, double inverse) {
  double quotient = a * inverse;
  quotient = fma_of(fma_of(-quotient, b, a), inverse, quotient);
  return fma_of(fma_of(-quotient, b, a), inverse, quotient);
}

/// The code of a number that is not negative, rounded to nearest even, at most `most`.
template <int kMantissa, int kBias>
SUBBYTE_BLOCK_FUNCTION uint32_t encode(double value, uint32_t most) {
  constexpr int kDropped = 52 - kMantissa;
  constexpr uint64_t kHalf = (uint64_t{1} << (kDropped - 1)) - 1;
  const double least = power_of_two(1 - kBias);
  // Adding this power of two leaves the subnormal's code in the lowest bits of the sum.
  const double magic = power_of_two(53 - kBias - kMantissa);
  const uint64_t bits = bits_of(value);
  if (value < least) return static_cast<uint32_t>(bits_of(value + magic) - bits_of(magic));
  const uint64_t code = ((bits + kHalf + (bits >> kDropped & 1)) >> kDropped) -
                        (static_cast<uint64_t>(1023 - kBias) << kMantissa);
  return code < most ? static_cast<uint32_t>(code) : most;
}

template <int kMantissa, int kBias>
SUBBYTE_BLOCK_FUNCTION double decode(uint32_t code) {
  if (code >> kMantissa == 0) return code * power_of_two(1 - kBias - kMantissa);
  return of_bits((static_cast<uint64_t>(code) << (52 - kMantissa)) +
                 (static_cast<uint64_t>(1023 - kBias) << 52));
}

/// Magnitude of e2m1, at most 6.
SUBBYTE_BLOCK_FUNCTION uint32_t e2m1_of(double value) {
  return encode<1, 1>(value, 7);
}
SUBBYTE_BLOCK_FUNCTION uint32_t e4m3_of(double value) {
  return encode<3, 7>(value, 0x7E);
}
SUBBYTE_BLOCK_FUNCTION uint32_t e4m4_of(double value) {
  return encode<4, 11>(value, 0xFF);
}
constexpr uint32_t kF16Infinity = 0x7C00;

struct Range {
  float low = 0;
  float high = 0;
};

SUBBYTE_BLOCK_FUNCTION float largest_of(const Range& range) {
  const float largest = range.high > -range.low ? range.high : range.low;
  return blocks::as_float(blocks::as_bits(largest) & blocks::kMagnitude);
}

/// A rule's group. Scale and zero are what is stored.
struct Group {
  uint32_t scale = 0;
  uint32_t zero = 0;
  double step = 1;     // of the codes, as they will be multiplied
  double inverse = 1;  // 1 / step
};

/// round_to_nearest.h: f16 scales, and zero points unless kIsSymmetric.
template <bool kIsSymmetric>
struct Integers {
  static constexpr bool kSearches = false;
  int q_max;

  /// A weight over the step, cut to +-2^20, as an integer, ties to even.
  static SUBBYTE_BLOCK_MEMBER int32_t quotient(float weight, const Group& group) {
    double value = divide(weight, group.step, group.inverse);
    value = value < -0x1p20 ? -0x1p20 : value;
    value = value > 0x1p20 ? 0x1p20 : value;
    // Numbers of this size have no fraction: their lowest bits are the integer.
    return static_cast<int32_t>(static_cast<uint32_t>(bits_of(value + 0x1.8p52)));
  }
  SUBBYTE_BLOCK_MEMBER uint32_t clamped(int32_t code) const {
    return static_cast<uint32_t>(code < 0 ? 0 : code > q_max ? q_max : code);
  }
  SUBBYTE_BLOCK_MEMBER Group group(const Range& range, double) const {
    const double size =
        kIsSymmetric ? 2 * double{largest_of(range)} : double{range.high} - range.low;
    Group group;
    group.scale = encode<10, 15>(size / q_max, kF16Infinity);
    group.scale = size == 0 ? 0x3C00 : group.scale == 0 ? 1 : group.scale;
    group.step = decode<10, 15>(group.scale);
    group.inverse = 1 / group.step;
    group.zero = clamped(kIsSymmetric ? (q_max + 1) / 2 : quotient(-range.low, group));
    return group;
  }
  SUBBYTE_BLOCK_MEMBER uint32_t code(const Group& group, float weight) const {
    return clamped(quotient(weight, group) + static_cast<int32_t>(group.zero));
  }
  static SUBBYTE_BLOCK_MEMBER bool overflows(const Group& group) {
    return group.scale == kF16Infinity;
  }
};

/// The part that rules with elements of e2m1 share.
struct Fp4 {
  static SUBBYTE_BLOCK_MEMBER double quotient(const Group& group, float weight) {
    return magnitude(divide(weight, group.step, group.inverse));
  }
  static SUBBYTE_BLOCK_MEMBER uint32_t code(const Group& group, float weight) {
    return e2m1_of(quotient(group, weight)) | sign_of(weight) << 3;
  }
  /// The squared error of a weight in units of the step, added to `sum`.
  static SUBBYTE_BLOCK_MEMBER double add_error(double sum, const Group& group, float weight) {
    const double value = quotient(group, weight);
    return add_square(sum, value - decode<1, 1>(e2m1_of(value)));
  }
  static SUBBYTE_BLOCK_MEMBER bool is_better(const Group& other, double other_error,
                                             const Group& group, double error) {
    return other_error * other.step * other.step < error * group.step * group.step;
  }
  static SUBBYTE_BLOCK_MEMBER bool overflows(const Group&) { return false; }
};

/// quantize/mxfp4.h; the search has the rule kCeil.
template <bool kWithSearch>
struct Mxfp4 : Fp4 {
  static constexpr bool kSearches = kWithSearch;
  uint32_t threshold;  // blocks::scale_threshold()

  SUBBYTE_BLOCK_MEMBER Group group(const Range& range, double) const {
    Group group;
    group.scale = blocks::e8m0_of<blocks::E2M1>(blocks::as_bits(largest_of(range)), threshold);
    group.step = power_of_two(static_cast<int>(group.scale) - 127);
    group.inverse = power_of_two(127 - static_cast<int>(group.scale));
    return group;
  }
  SUBBYTE_BLOCK_MEMBER Group other(const Group& group, const Range&, double) const {
    Group other = group;
    if (group.scale == 0) return other;
    other.scale = group.scale - 1;
    other.step = group.step / 2;
    other.inverse = group.inverse * 2;
    return other;
  }
};

/// quantize/nvfp4.h, TensorFactor::kDivides.
template <bool kWithSearch>
struct Nvfp4 : Fp4 {
  static constexpr bool kSearches = kWithSearch;

  static SUBBYTE_BLOCK_MEMBER double factor(float largest) {
    if (largest == 0) return 1;
    double stored = 6.0 * (kWithSearch ? 256 : 448) / largest;
    stored = stored < 0x1p-149 ? 0x1p-149 : stored;
    stored = stored > 0x1.fffffep127 ? 0x1.fffffep127 : stored;
    return 1 / double{static_cast<float>(stored)};
  }
  static SUBBYTE_BLOCK_MEMBER Group with_largest(double largest, double element, double factor) {
    const double wanted = largest / element / factor;
    Group group;
    group.scale = e4m3_of(wanted < 448 ? wanted : 448);
    if (group.scale == 0) group.scale = 1;
    group.step = decode<3, 7>(group.scale) * factor;
    group.inverse = 1 / group.step;
    return group;
  }
  SUBBYTE_BLOCK_MEMBER Group group(const Range& range, double factor) const {
    const float largest = largest_of(range);
    // All codes of a group of zeros are 0, those of -0 too.
    if (largest == 0) return {0x38, 0, 0, 0};
    return with_largest(largest, 6, factor);
  }
  SUBBYTE_BLOCK_MEMBER Group other(const Group& group, const Range& range, double factor) const {
    return group.step == 0 ? group : with_largest(largest_of(range), 4, factor);
  }
  SUBBYTE_BLOCK_MEMBER uint32_t code(const Group& group, float weight) const {
    return group.step == 0 ? 0 : Fp4::code(group, weight);
  }
};

/// quantize/nf4.h: the scale is a float.
struct Nf4 {
  static constexpr bool kSearches = false;
  double bounds[15];  // middles between neighbours, which belong to the lower one

  SUBBYTE_BLOCK_MEMBER Group group(const Range& range, double) const {
    const float largest = largest_of(range);
    Group group;
    group.step = largest == 0 ? 1 : largest;
    group.inverse = 1 / group.step;
    group.scale = blocks::as_bits(static_cast<float>(group.step));
    return group;
  }
  SUBBYTE_BLOCK_MEMBER uint32_t code(const Group& group, float weight) const {
    const double value = divide(weight, group.step, group.inverse);
    uint32_t code = 0;
    for (const double bound : bounds) code += value > bound ? 1 : 0;
    return code;
  }
  static SUBBYTE_BLOCK_MEMBER bool overflows(const Group&) { return false; }
};

/// quantize/kbit.h, KbitRule::kStoredScale with E4M4 scales and kbit_factor().
struct Nfl {
  static constexpr bool kSearches = false;
  int num_thresholds;
  float thresholds[31];  // of CodebookEncoder

  static SUBBYTE_BLOCK_MEMBER double factor(float largest) {
    if (largest == 0) return 1;
    const uint64_t bits = bits_of(largest);
    const bool is_over = (bits & 0xFFFFFFFFFFFFF) > 0xF000000000000;  // of 31 / 16
    return of_bits(((bits >> 52) - 4 + (is_over ? 1 : 0)) << 52);
  }
  SUBBYTE_BLOCK_MEMBER Group group(const Range& range, double factor) const {
    Group group;
    group.scale = e4m4_of(largest_of(range) / factor);
    group.step = static_cast<float>(decode<4, 11>(group.scale) * factor);
    return group;
  }
  SUBBYTE_BLOCK_MEMBER uint32_t code(const Group& group, float weight) const {
    const auto divisor = static_cast<float>(group.step);
    if (!(divisor > 0) || divisor > 0x1.fffffep127f) return 0;
    const float value = weight / divisor;
    uint32_t code = 0;
    for (int i = 0; i < num_thresholds; ++i) code += value > thresholds[i] ? 1 : 0;
    return code;
  }
  static SUBBYTE_BLOCK_MEMBER bool overflows(const Group&) { return false; }
};

/// quantize/fp8.h: a factor, f32, for a block of 128 x 128.
struct Fp8 {
  static SUBBYTE_BLOCK_MEMBER float factor_of(float largest) {
    const float factor = largest / 448;
    return largest == 0 ? 1 : factor > 0x1p-126f ? factor : 0x1p-126f;
  }
  static SUBBYTE_BLOCK_MEMBER uint32_t code(double factor, double inverse, float weight) {
    return e4m3_of(magnitude(divide(weight, factor, inverse))) | sign_of(weight) << 7;
  }
};

}  // namespace subbyte::weights
