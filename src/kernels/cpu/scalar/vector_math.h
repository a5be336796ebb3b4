#pragma once
// The vector vocabulary of generic/elementwise.inl.h and generic/attention.inl.h, vectors of one.

#include "kernels/cpu/scalar/vec.h"
#include "kernels/kv_e4m3.h"

namespace subbyte::cpu::scalar {
namespace {

// Attention multiplies tiles of kAttentionRows query rows, or fewer, by as many vectors as give
// kAttentionSums accumulators, enough to hide the latency of the fused multiply-add.
constexpr int kAttentionRows = 2;
constexpr int kAttentionSums = 8;
constexpr int kAttentionDotRows = 1;  // with four keys each

/// b where one of them is NaN.
inline Float min(Float a, Float b) {
  return a < b ? a : b;
}
/// The nearest integer, ties to even, of |v| < 2^22: after 1.5 * 2^23 there is no fraction.
inline Float nearest(Float v) {
  constexpr float kNoFraction = 12582912;
  return (v + kNoFraction) - kNoFraction;
}
/// v * 2^n for integers n from -150 to 128, rounded once: n in two halves, of which the first
/// keeps v normal.
inline Float times_power_of_two(Float v, Float n) {
  if (n != n) return n;
  const int power = static_cast<int>(n);
  const int half = power / 2;
  const auto two_to = [](int e) {
    return __builtin_bit_cast(float, static_cast<uint32_t>(e + 127) << 23);
  };
  return v * two_to(half) * two_to(power - half);
}

/// 2^-8 times an e4m3 that is not NaN.
inline Float load_e4m3_as_f16(const uint8_t* p) {
  return to_float(Float16{e4m3::f16_bits(*p)});
}
inline void store_f16(uint8_t* p, Float v) {
  const Float16 value = to_float16(v);
  __builtin_memcpy(p, &value, sizeof(value));
}
inline void store_bf16(uint8_t* p, Float v) {
  const BFloat16 value = to_bfloat16(v);
  __builtin_memcpy(p, &value, sizeof(value));
}

inline Float first_or(Float, int64_t, Float other) {
  return other;
}

inline float first_lane(Float v) {
  return v;
}
inline float sum(Float v) {
  return v;
}
inline float max_across(Float v) {
  return v;
}

/// Loads the two floats at p: the one at the even place, and the one at the odd one.
inline void load_alternating(const float* p, Float* even, Float* odd) {
  *even = p[0];
  *odd = p[1];
}

/// A double for each lane.
struct Doubles {
  double value;
};
inline Doubles no_doubles() {
  return {0};
}
/// sums + v^2
inline Doubles add_squares(Doubles sums, Float v) {
  const double value = v;
  return {sums.value + value * value};
}
inline double sum(Doubles sums) {
  return sums.value;
}
inline float square_root(float value) {
  return __builtin_sqrtf(value);
}

inline void transpose(Float*) {}

}  // namespace
}  // namespace subbyte::cpu::scalar
