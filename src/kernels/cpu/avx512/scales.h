#pragma once
// Scales and zero points as float vectors, AVX-512.
//   broadcast_*(p)              the one at p in every lane
//   spread_*(p, count, lanes)   lane i gets number lanes[i] of the `count` <= 16 at p; reads no
//   more

#include "formats/weight_format.h"
#include "kernels/cpu/avx512/vec.h"

namespace subbyte::cpu::avx512 {
namespace {

/// The `bytes` <= 16 at p, then zeros. Masked loads would do for all, but Zen 5 does not prefetch
/// for them, and scales are a stream of their own: so the usual counts have loads of their own.
inline __m128i load_part(const uint8_t* p, int bytes) {
  if (bytes == 4) return _mm_loadu_si32(p);
  if (bytes == 8) return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  if (bytes == 16) return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm_maskz_loadu_epi8(static_cast<__mmask16>((1u << bytes) - 1), p);
}

/// The `count` <= 16 words at p, then zeros.
inline __m256i load_words(const uint8_t* p, int count) {
  if (count <= 8) return _mm256_castsi128_si256(load_part(p, 2 * count));
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

inline Float bf16_to_float(__m256i bits) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

inline short word_at(const uint8_t* p) {
  short word = 0;
  __builtin_memcpy(&word, p, sizeof(word));
  return word;
}

template <Format kScale>
inline Float broadcast_scale(const uint8_t* p) {
  if constexpr (kScale == Format::kF16) {
    return _mm512_cvtph_ps(_mm256_set1_epi16(word_at(p)));
  } else if constexpr (kScale == Format::kBF16) {
    return bf16_to_float(_mm256_set1_epi16(word_at(p)));
  } else if constexpr (kScale == Format::kE8M0) {
    return e8m0_to_float(_mm_set1_epi8(static_cast<char>(*p)));
  } else {
    static_assert(kScale == Format::kF32);
    float value = 0;
    __builtin_memcpy(&value, p, sizeof(value));
    return broadcast(value);
  }
}

template <Format kScale>
inline Float spread_scales(const uint8_t* p, int count, Lanes lanes) {
  if constexpr (kScale == Format::kF16) {
    return permute(_mm512_cvtph_ps(load_words(p, count)), lanes);
  } else if constexpr (kScale == Format::kBF16) {
    return permute(bf16_to_float(load_words(p, count)), lanes);
  } else if constexpr (kScale == Format::kE8M0) {
    return permute(e8m0_to_float(load_part(p, count)), lanes);
  } else {
    static_assert(kScale == Format::kF32);
    return permute(_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), p), lanes);
  }
}

template <Zero kZero>
inline Float broadcast_zero(const uint8_t* p) {
  if constexpr (kZero == Zero::kU8) {
    return _mm512_cvtepi32_ps(_mm512_set1_epi32(*p));
  } else {
    static_assert(kZero == Zero::kU16);
    return _mm512_cvtepi32_ps(_mm512_cvtepu16_epi32(_mm256_set1_epi16(word_at(p))));
  }
}

template <Zero kZero>
inline Float spread_zeros(const uint8_t* p, int count, Lanes lanes) {
  if constexpr (kZero == Zero::kU8) {
    return permute(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(load_part(p, count))), lanes);
  } else {
    static_assert(kZero == Zero::kU16);
    return permute(_mm512_cvtepi32_ps(_mm512_cvtepu16_epi32(load_words(p, count))), lanes);
  }
}

}  // namespace
}  // namespace subbyte::cpu::avx512
