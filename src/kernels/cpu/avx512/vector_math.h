#pragma once
// The vector vocabulary of generic/elementwise.inl.h and generic/attention.inl.h, AVX-512.

#include "kernels/cpu/avx512/vec.h"
#include "kernels/kv_e4m3.h"

namespace subbyte::cpu::avx512 {
namespace {

// Attention multiplies tiles of kAttentionRows query rows, or fewer, by as many vectors as give
// kAttentionSums accumulators, enough to hide the latency of the fused multiply-add.
constexpr int kAttentionRows = 8;
constexpr int kAttentionSums = 16;
constexpr int kAttentionDotRows = 4;  // with four keys each

/// a < b ? a : b, so b where one of them is NaN.
inline Float min(Float a, Float b) {
  return _mm512_min_ps(a, b);
}
/// The nearest integer, ties to even.
inline Float nearest(Float v) {
  return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/// v * 2^n for integers n from -150 to 128, rounded once.
inline Float times_power_of_two(Float v, Float n) {
  return _mm512_scalef_ps(v, n);
}

/// 2^-8 times numbers in e4m3 that are not NaN: signs and the rest move to where f16 has them.
inline Float load_e4m3_as_f16(const uint8_t* p) {
  const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m256i high = _mm256_slli_epi16(_mm256_cvtepu8_epi16(codes), 8);
  const __m256i rest = _mm256_and_si256(_mm256_srli_epi16(high, 1), _mm256_set1_epi16(0x3F80));
  const __m256i signs = _mm256_and_si256(high, _mm256_set1_epi16(static_cast<int16_t>(0x8000)));
  return _mm512_cvtph_ps(_mm256_or_si256(signs, rest));
}
inline void store_f16(uint8_t* p, Float v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
/// To nearest, ties to even; NaN becomes quiet.
inline void store_bf16(uint8_t* p, Float v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
  const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  const __m512i words =
      _mm512_srli_epi32(_mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000)), 16);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(words));
}

/// The first `count` < kLanes lanes of v, then those of other.
inline Float first_or(Float v, int64_t count, Float other) {
  return _mm512_mask_mov_ps(other, mask_of(count), v);
}

inline float first_lane(Float v) {
  return _mm512_cvtss_f32(v);
}
/// The largest lane; there is no NaN in v.
inline float max_across(Float v) {
  const __m256 a = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

/// Loads the 2 * kLanes floats at p: those at even places, and those at odd ones.
inline void load_alternating(const float* p, Float* even, Float* odd) {
  const __m512i first =
      _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(1));
  const Float a = load(p);
  const Float b = load(p + kLanes);
  *even = _mm512_permutex2var_ps(a, first, b);
  *odd = _mm512_permutex2var_ps(a, second, b);
}

/// A double for each lane.
struct Doubles {
  __m512d low, high;
};
inline Doubles no_doubles() {
  return {_mm512_setzero_pd(), _mm512_setzero_pd()};
}
/// sums + v^2; the squares of floats are exact in double.
inline Doubles add_squares(Doubles sums, Float v) {
  const __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(v));
  const __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
  return {_mm512_fmadd_pd(low, low, sums.low), _mm512_fmadd_pd(high, high, sums.high)};
}
inline double sum(Doubles sums) {
  const __m512d all = _mm512_add_pd(sums.low, sums.high);
  const __m256d a = _mm256_add_pd(_mm512_castpd512_pd256(all), _mm512_extractf64x4_pd(all, 1));
  const __m128d b = _mm_add_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
  return _mm_cvtsd_f64(_mm_add_sd(b, _mm_unpackhi_pd(b, b)));
}

inline float square_root(float value) {
  return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(value)));
}

/// rows[i] lane j becomes rows[j] lane i.
inline void transpose(Float* rows) {
  Float fours[16];  // 4 * g + e: of the rows 4g .. 4g+3 the columns e, 4 + e, 8 + e, 12 + e
#pragma GCC unroll 4
  for (int g = 0; g < 16; g += 4) {
    const Float a = _mm512_unpacklo_ps(rows[g], rows[g + 1]);
    const Float b = _mm512_unpackhi_ps(rows[g], rows[g + 1]);
    const Float c = _mm512_unpacklo_ps(rows[g + 2], rows[g + 3]);
    const Float d = _mm512_unpackhi_ps(rows[g + 2], rows[g + 3]);
    fours[g] = _mm512_shuffle_ps(a, c, 0x44);
    fours[g + 1] = _mm512_shuffle_ps(a, c, 0xEE);
    fours[g + 2] = _mm512_shuffle_ps(b, d, 0x44);
    fours[g + 3] = _mm512_shuffle_ps(b, d, 0xEE);
  }
#pragma GCC unroll 4
  for (int e = 0; e < 4; ++e) {
    const Float even_ab = _mm512_shuffle_f32x4(fours[e], fours[e + 4], 0x88);
    const Float odd_ab = _mm512_shuffle_f32x4(fours[e], fours[e + 4], 0xDD);
    const Float even_cd = _mm512_shuffle_f32x4(fours[e + 8], fours[e + 12], 0x88);
    const Float odd_cd = _mm512_shuffle_f32x4(fours[e + 8], fours[e + 12], 0xDD);
    rows[e] = _mm512_shuffle_f32x4(even_ab, even_cd, 0x88);
    rows[e + 4] = _mm512_shuffle_f32x4(odd_ab, odd_cd, 0x88);
    rows[e + 8] = _mm512_shuffle_f32x4(even_ab, even_cd, 0xDD);
    rows[e + 12] = _mm512_shuffle_f32x4(odd_ab, odd_cd, 0xDD);
  }
}

}  // namespace
}  // namespace subbyte::cpu::avx512
