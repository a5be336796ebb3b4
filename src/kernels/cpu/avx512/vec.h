#pragma once
// The vector vocabulary for AVX-512 (F, BW, VL, DQ). Every instruction set has a vec.h with these
// names; generic/ is written against them. Here and in what includes this file nothing of the
// standard library may be called: see cmake/SubbyteIsa.cmake.

#include <immintrin.h>

#include <cstdint>

namespace subbyte::cpu::avx512 {
namespace {

constexpr int kLanes = 16;
using Float = __m512;
using Int = __m512i;    // 32-bit integers, or bytes, four to a lane
using Lanes = __m512i;  // for each lane an index into another vector

constexpr int kGemmTileOutputs = 8;  // a multiple of 4

#include "kernels/cpu/generic/vector_words.inl.h"

inline Int broadcast_int(uint32_t bits) {
  return _mm512_set1_epi32(static_cast<int>(bits));
}
inline Int add_int(Int a, Int b) {
  return _mm512_add_epi32(a, b);
}
inline Int sub_int(Int a, Int b) {
  return _mm512_sub_epi32(a, b);
}
inline Int and_bits(Int v, uint32_t bits) {
  return _mm512_and_si512(v, broadcast_int(bits));
}
inline Int xor_bits(Int v, uint32_t bits) {
  return _mm512_xor_si512(v, broadcast_int(bits));
}
inline Int or_bits(Int a, Int b) {
  return _mm512_or_si512(a, b);
}
template <int n>
inline Int shift_left(Int v) {
  return _mm512_slli_epi32(v, n);
}
template <int n>
inline Int shift_right(Int v) {
  return _mm512_srli_epi32(v, n);
}
/// The sign comes in from the left.
template <int n>
inline Int shift_right_signed(Int v) {
  return _mm512_srai_epi32(v, n);
}
inline Float int_to_float(Int v) {
  return _mm512_cvtepi32_ps(v);
}
inline Float broadcast(float value) {
  return _mm512_set1_ps(value);
}
inline Float load(const float* p) {
  return _mm512_loadu_ps(p);
}
inline Int widen_bytes(__m128i bytes) {
  return _mm512_cvtepu8_epi32(bytes);
}
inline Int widen_words(__m256i words) {
  return _mm512_cvtepu16_epi32(words);
}
inline Float bf16_to_float(__m256i bits) {
  return float_of_bits(shift_left<16>(widen_words(bits)));
}
inline Float load_bf16(const uint8_t* p) {
  return bf16_to_float(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline Float f16_to_float(__m256i bits) {
  return _mm512_cvtph_ps(bits);
}
inline Float load_f16(const uint8_t* p) {
  return f16_to_float(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline Float load_f32(const uint8_t* p) {
  return _mm512_loadu_ps(p);
}
/// Four numbers from each place, or two, one after the other.
inline Float load_parts(const float* const (&p)[4]) {
  const __m256 low =
      _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p[0])), _mm_loadu_ps(p[1]), 1);
  const __m512 three = _mm512_insertf32x4(_mm512_castps256_ps512(low), _mm_loadu_ps(p[2]), 2);
  return _mm512_insertf32x4(three, _mm_loadu_ps(p[3]), 3);
}
inline __m128 load_two_parts(const float* a, const float* b) {
  const __m128d low = _mm_load_sd(reinterpret_cast<const double*>(a));
  return _mm_castpd_ps(_mm_loadh_pd(low, reinterpret_cast<const double*>(b)));
}
inline Float load_parts(const float* const (&p)[8]) {
  const __m256 low = _mm256_insertf128_ps(_mm256_castps128_ps256(load_two_parts(p[0], p[1])),
                                          load_two_parts(p[2], p[3]), 1);
  const __m512 three =
      _mm512_insertf32x4(_mm512_castps256_ps512(low), load_two_parts(p[4], p[5]), 2);
  return _mm512_insertf32x4(three, load_two_parts(p[6], p[7]), 3);
}
inline void store(float* p, Float v) {
  _mm512_storeu_ps(p, v);
}
inline __mmask16 mask_of(int64_t count) {
  return static_cast<__mmask16>((1u << count) - 1);
}
/// The first `count` <= kLanes floats at p, then zeros. Nothing after them is touched.
inline Float load_part(const float* p, int64_t count) {
  return _mm512_maskz_loadu_ps(mask_of(count), p);
}
inline void store_part(float* p, Float v, int64_t count) {
  _mm512_mask_storeu_ps(p, mask_of(count), v);
}
/// a * b + c
inline Float fma(Float a, Float b, Float c) {
  return _mm512_fmadd_ps(a, b, c);
}
/// c - a * b
inline Float fnma(Float a, Float b, Float c) {
  return _mm512_fnmadd_ps(a, b, c);
}

/// a > b ? a : b, so b where one of them is NaN.
inline Float max(Float a, Float b) {
  return _mm512_max_ps(a, b);
}
inline bool are_finite(Float v) {  // all lanes
  return _mm512_cmp_ps_mask(sub(v, v), zero(), _CMP_EQ_OQ) == 0xFFFF;
}
inline Float magnitude(Float v) {
  return _mm512_abs_ps(v);
}
/// factor / v where v > floor, else 0.
inline Float reciprocal_above(Float v, float floor, float factor) {
  const __mmask16 above = _mm512_cmp_ps_mask(v, _mm512_set1_ps(floor), _CMP_GT_OQ);
  return _mm512_maskz_div_ps(above, _mm512_set1_ps(factor), v);
}

inline Int load_int(const uint8_t* p) {
  return _mm512_loadu_si512(p);
}
inline void store_int(uint8_t* p, Int v) {
  _mm512_storeu_si512(p, v);
}
/// To nearest, ties to even.
inline Int round_to_int(Float v) {
  return _mm512_cvtps_epi32(v);
}
/// Lanes from `count` on become zero.
inline Float keep_first(Float v, int count) {
  return _mm512_maskz_mov_ps(static_cast<__mmask16>((1u << count) - 1), v);
}

/// Lane i: (first + i) / divisor. Exact: the quotients stay 0.5 / divisor away from integers.
inline Lanes divided_lanes(int first, int divisor) {
  const __m512i i = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const Float n = _mm512_cvtepi32_ps(_mm512_add_epi32(i, _mm512_set1_epi32(first)));
  const Float half = _mm512_add_ps(n, _mm512_set1_ps(0.5f));
  return _mm512_cvttps_epi32(_mm512_div_ps(half, _mm512_set1_ps(static_cast<float>(divisor))));
}

inline Float permute(Float v, Lanes lanes) {
  return _mm512_permutexvar_ps(lanes, v);
}

/// Sum of all lanes, halves first.
inline float sum(Float v) {
  const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}

/// The sums of four vectors: each lane of each vector meets the same additions in the same order.
inline void sum4(const Float* v, float* sums) {
  const Float ab =
      add(_mm512_shuffle_f32x4(v[0], v[1], 0x44), _mm512_shuffle_f32x4(v[0], v[1], 0xEE));
  const Float cd =
      add(_mm512_shuffle_f32x4(v[2], v[3], 0x44), _mm512_shuffle_f32x4(v[2], v[3], 0xEE));
  // Now 128-bit quarters a a b b and c c d d; one more step leaves a b c d.
  Float q = add(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xDD));
  q = add(q, _mm512_permute_ps(q, 0x4E));
  q = add(q, _mm512_permute_ps(q, 0xB1));
  const __m512i first_of_quarters =
      _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
  _mm_storeu_ps(sums, _mm512_castps512_ps128(_mm512_permutexvar_ps(first_of_quarters, q)));
}

/// x holds kLanes runs of 8; vector j of `out` gets element j of each.
inline void transpose_k8(const float* x, Float* out) {
  Float rows[8];  // row i: run i in the lower half, run i + 8 in the upper
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    rows[i] = _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(x + 8 * i)),
                                 _mm256_loadu_ps(x + 8 * (i + 8)), 1);
  }
  Float pairs[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);      // elements 0, 1 | 4, 5
    pairs[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);  // elements 2, 3 | 6, 7
  }
  const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27);
  const __m512i high =
      _mm512_setr_epi32(4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {  // elements 2h, 2h + 1 and four more
    const Float e0 = _mm512_shuffle_ps(pairs[h], pairs[h + 2], 0x44);
    const Float e1 = _mm512_shuffle_ps(pairs[h], pairs[h + 2], 0xEE);
    const Float f0 = _mm512_shuffle_ps(pairs[h + 4], pairs[h + 6], 0x44);
    const Float f1 = _mm512_shuffle_ps(pairs[h + 4], pairs[h + 6], 0xEE);
    out[2 * h] = _mm512_permutex2var_ps(e0, low, f0);
    out[2 * h + 1] = _mm512_permutex2var_ps(e1, low, f1);
    out[2 * h + 4] = _mm512_permutex2var_ps(e0, high, f0);
    out[2 * h + 5] = _mm512_permutex2var_ps(e1, high, f1);
  }
}

}  // namespace
}  // namespace subbyte::cpu::avx512
