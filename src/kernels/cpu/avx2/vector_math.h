#pragma once
// The vector vocabulary of generic/elementwise.inl.h and generic/attention.inl.h, AVX2 and FMA.

#include "kernels/cpu/avx2/vec.h"
#include "kernels/kv_e4m3.h"

namespace subbyte::cpu::avx2 {
namespace {

// Attention multiplies tiles of kAttentionRows query rows, or fewer, by as many vectors as give
// kAttentionSums accumulators, enough to hide the latency of the fused multiply-add.
constexpr int kAttentionRows = 4;
constexpr int kAttentionSums = 8;
constexpr int kAttentionDotRows = 2;  // with four keys each

/// a < b ? a : b, so b where one of them is NaN.
inline Float min(Float a, Float b) {
  return _mm256_min_ps(a, b);
}
/// The nearest integer, ties to even.
inline Float nearest(Float v) {
  return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/// v * 2^n for integers n from -150 to 128, rounded once: n in two halves, of which the first
/// keeps v normal.
inline Float times_power_of_two(Float v, Float n) {
  const __m256i power = _mm256_cvtps_epi32(n);
  const __m256i half = _mm256_srai_epi32(power, 1);
  const __m256i bias = _mm256_set1_epi32(127);
  const auto two_to = [bias](__m256i e) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(e, bias), 23));
  };
  const Float product = mul(mul(v, two_to(half)), two_to(_mm256_sub_epi32(power, half)));
  // The integer of NaN is no power, but v is NaN then too.
  return _mm256_blendv_ps(product, v, _mm256_cmp_ps(n, n, _CMP_UNORD_Q));
}

/// 2^-8 times numbers in e4m3 that are not NaN: signs and the rest move to where f16 has them.
inline Float load_e4m3_as_f16(const uint8_t* p) {
  const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  const __m128i high = _mm_unpacklo_epi8(_mm_setzero_si128(), codes);
  const __m128i rest = _mm_and_si128(_mm_srli_epi16(high, 1), _mm_set1_epi16(0x3F80));
  const __m128i signs = _mm_and_si128(high, _mm_set1_epi16(static_cast<int16_t>(0x8000)));
  return _mm256_cvtph_ps(_mm_or_si128(signs, rest));
}
inline void store_f16(uint8_t* p, Float v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
/// To nearest, ties to even; NaN becomes quiet.
inline void store_bf16(uint8_t* p, Float v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  const __m256i words = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(words, words), 0x08);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
}

/// The first `count` < kLanes lanes of v, then those of other.
inline Float first_or(Float v, int64_t count, Float other) {
  return _mm256_blendv_ps(other, v, _mm256_castsi256_ps(first_lanes(static_cast<int>(count))));
}

inline float first_lane(Float v) {
  return _mm256_cvtss_f32(v);
}
/// Sum of all lanes, halves first.
inline float sum(Float v) {
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
/// The largest lane; there is no NaN in v.
inline float max_across(Float v) {
  const __m128 b = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

/// Loads the 2 * kLanes floats at p: those at even places, and those at odd ones.
inline void load_alternating(const float* p, Float* even, Float* odd) {
  const Float a = load(p);
  const Float b = load(p + kLanes);
  const auto in_order = [](Float v) {  // the shuffles leave quarters 0 2 1 3
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xD8));
  };
  *even = in_order(_mm256_shuffle_ps(a, b, 0x88));
  *odd = in_order(_mm256_shuffle_ps(a, b, 0xDD));
}

/// A double for each lane.
struct Doubles {
  __m256d low, high;
};
inline Doubles no_doubles() {
  return {_mm256_setzero_pd(), _mm256_setzero_pd()};
}
/// sums + v^2; the squares of floats are exact in double.
inline Doubles add_squares(Doubles sums, Float v) {
  const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(v));
  const __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
  return {_mm256_fmadd_pd(low, low, sums.low), _mm256_fmadd_pd(high, high, sums.high)};
}
inline double sum(Doubles sums) {
  const __m256d a = _mm256_add_pd(sums.low, sums.high);
  const __m128d b = _mm_add_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
  return _mm_cvtsd_f64(_mm_add_sd(b, _mm_unpackhi_pd(b, b)));
}

inline float square_root(float value) {
  return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(value)));
}

/// rows[i] lane j becomes rows[j] lane i.
inline void transpose(Float* rows) {
  Float fours[8];  // 4 * g + e: of the rows 4g .. 4g+3 the columns e and 4 + e
#pragma GCC unroll 2
  for (int g = 0; g < 8; g += 4) {
    const Float a = _mm256_unpacklo_ps(rows[g], rows[g + 1]);
    const Float b = _mm256_unpackhi_ps(rows[g], rows[g + 1]);
    const Float c = _mm256_unpacklo_ps(rows[g + 2], rows[g + 3]);
    const Float d = _mm256_unpackhi_ps(rows[g + 2], rows[g + 3]);
    fours[g] = _mm256_shuffle_ps(a, c, 0x44);
    fours[g + 1] = _mm256_shuffle_ps(a, c, 0xEE);
    fours[g + 2] = _mm256_shuffle_ps(b, d, 0x44);
    fours[g + 3] = _mm256_shuffle_ps(b, d, 0xEE);
  }
#pragma GCC unroll 4
  for (int e = 0; e < 4; ++e) {
    rows[e] = _mm256_permute2f128_ps(fours[e], fours[e + 4], 0x20);
    rows[e + 4] = _mm256_permute2f128_ps(fours[e], fours[e + 4], 0x31);
  }
}

}  // namespace
}  // namespace subbyte::cpu::avx2
