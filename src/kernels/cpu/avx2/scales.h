#pragma once
// Scales and zero points as float vectors, AVX2.

#include "formats/weight_format.h"
#include "kernels/cpu/avx2/vec.h"

namespace subbyte::cpu::avx2 {
namespace {

/// 2^(code - 127). The exponent field of a float is the same number; 0 and 255 mean other things
/// there: 2^-127 is subnormal and 255 is NaN.
inline Float e8m0_to_float(__m128i bytes) {
  const __m256i codes = widen_bytes(bytes);
  const __m256i bits = _mm256_slli_epi32(codes, 23);
  const __m256i zeros = _mm256_cmpeq_epi32(codes, _mm256_setzero_si256());
  const __m256i nans = _mm256_cmpeq_epi32(codes, _mm256_set1_epi32(255));
  // 255 << 23 is infinity; one more mantissa bit makes it NaN.
  const __m256i extra = _mm256_and_si256(_mm256_or_si256(zeros, nans), _mm256_set1_epi32(0x400000));
  return _mm256_castsi256_ps(_mm256_or_si256(bits, extra));
}

/// By way of f16, whose exponents differ by 8 and by 4: also right for subnormal codes, whatever
/// the host program has set for subnormal floats. The codes are bytes.
inline Float e4m3_to_float(__m128i codes) {
  const __m128i words = _mm_cvtepu8_epi16(codes);
  const __m128i signs = _mm_slli_epi16(_mm_and_si128(words, _mm_set1_epi16(0x80)), 8);
  const __m128i rest = _mm_and_si128(words, _mm_set1_epi16(0x7F));
  const __m128i nans = _mm_cmpeq_epi16(rest, _mm_set1_epi16(0x7F));
  const __m128i halves = _mm_or_si128(signs, _mm_slli_epi16(rest, 7));
  const __m128i checked = _mm_blendv_epi8(halves, _mm_set1_epi16(0x7E00), nans);
  return _mm256_mul_ps(_mm256_cvtph_ps(checked), _mm256_set1_ps(256));
}

inline Float e4m4_to_float(__m128i codes) {
  const __m128i halves = _mm_slli_epi16(_mm_cvtepu8_epi16(codes), 6);
  return _mm256_mul_ps(_mm256_cvtph_ps(halves), _mm256_set1_ps(16));
}

/// The `bytes` <= 16 at p, then zeros.
inline __m128i load_part(const uint8_t* p, int bytes) {
  const auto* from = reinterpret_cast<const __m128i*>(p);
  if (bytes == 16) return _mm_loadu_si128(from);
  if (bytes == 8) return _mm_loadl_epi64(from);
  if (bytes == 2 || bytes == 4) {  // factors of two levels
    uint32_t word = 0;
    bytes == 2 ? __builtin_memcpy(&word, p, 2) : __builtin_memcpy(&word, p, 4);
    return _mm_cvtsi32_si128(static_cast<int>(word));
  }
  alignas(16) uint8_t padded[16] = {};
  __builtin_memcpy(padded, p, static_cast<unsigned long>(bytes));
  return _mm_load_si128(reinterpret_cast<const __m128i*>(padded));
}

/// The `count` <= 8 words at p, then zeros.
inline __m128i load_words(const uint8_t* p, int count) {
  return load_part(p, 2 * count);
}

#include "kernels/cpu/generic/scale_loads.inl.h"

}  // namespace
}  // namespace subbyte::cpu::avx2
