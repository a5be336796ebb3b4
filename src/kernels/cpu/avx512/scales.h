#pragma once
// Scales and zero points as float vectors, AVX-512.

#include "formats/weight_format.h"
#include "kernels/cpu/avx512/vec.h"

namespace subbyte::cpu::avx512 {
namespace {

/// The `bytes` <= 16 at p, then zeros.
inline __m128i load_part(const uint8_t* p, int bytes) {
  return _mm_maskz_loadu_epi8(static_cast<__mmask16>((1u << bytes) - 1), p);
}

/// The `count` <= 16 words at p, then zeros.
inline __m256i load_words(const uint8_t* p, int count) {
  return _mm256_maskz_loadu_epi16(static_cast<__mmask16>((1u << count) - 1), p);
}

/// 2^(code - 127). The exponent field of a float is the same number; codes 0 and 255 mean other
/// things there, and the top bit of the mantissa makes them right: 2^-127, which is subnormal, and
/// NaN.
inline Float e8m0_to_float(__m128i codes) {
  const __mmask16 edges =
      _mm_cmple_epu8_mask(_mm_add_epi8(codes, _mm_set1_epi8(1)), _mm_set1_epi8(1));
  const __m512i bits = _mm512_slli_epi32(_mm512_cvtepu8_epi32(codes), 23);
  return _mm512_castsi512_ps(
      _mm512_mask_or_epi32(bits, edges, bits, _mm512_set1_epi32(0x00400000)));
}

/// By way of f16, whose exponents differ by 8 and by 4: also right for subnormal codes, whatever
/// the host program has set for subnormal floats.
inline Float e4m3_to_float(__m128i codes) {
  const __m256i words = _mm256_cvtepu8_epi16(codes);
  const __m256i signs = _mm256_slli_epi16(_mm256_and_si256(words, _mm256_set1_epi16(0x80)), 8);
  const __m256i rest = _mm256_and_si256(words, _mm256_set1_epi16(0x7F));
  const __mmask16 nans = _mm256_cmpeq_epi16_mask(rest, _mm256_set1_epi16(0x7F));
  __m256i halves = _mm256_or_si256(signs, _mm256_slli_epi16(rest, 7));
  halves = _mm256_mask_mov_epi16(halves, nans, _mm256_set1_epi16(0x7E00));
  return _mm512_mul_ps(_mm512_cvtph_ps(halves), _mm512_set1_ps(256));
}

inline Float e4m4_to_float(__m128i codes) {
  const __m256i halves = _mm256_slli_epi16(_mm256_cvtepu8_epi16(codes), 6);
  return _mm512_mul_ps(_mm512_cvtph_ps(halves), _mm512_set1_ps(16));
}

#include "kernels/cpu/generic/scale_loads.inl.h"

}  // namespace
}  // namespace subbyte::cpu::avx512
