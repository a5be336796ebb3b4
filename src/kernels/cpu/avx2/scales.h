#pragma once
// Scales and zero points as float vectors, AVX2.
//   broadcast_*(p)              the one at p in every lane
//   spread_*(p, count, lanes)   lane i gets number lanes[i] of the `count` <= 8 at p; reads no more

#include "formats/weight_format.h"
#include "kernels/cpu/avx2/vec.h"

namespace subbyte::cpu::avx2 {
namespace {

/// 2^(code - 127). The exponent field of a float is the same number; 0 and 255 mean other things
/// there: 2^-127 is subnormal and 255 is NaN.
inline Float e8m0_to_float(__m256i codes) {
  const __m256i bits = _mm256_slli_epi32(codes, 23);
  const __m256i zeros = _mm256_cmpeq_epi32(codes, _mm256_setzero_si256());
  const __m256i nans = _mm256_cmpeq_epi32(codes, _mm256_set1_epi32(255));
  // 255 << 23 is infinity; one more mantissa bit makes it NaN.
  const __m256i extra = _mm256_and_si256(_mm256_or_si256(zeros, nans), _mm256_set1_epi32(0x400000));
  return _mm256_castsi256_ps(_mm256_or_si256(bits, extra));
}

inline Float bf16_to_float(__m128i bits) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

/// The `bytes` <= 16 at p, then zeros. The usual counts stay in registers: a vector load right
/// after narrower stores would wait for them to reach the cache.
inline __m128i load_part(const uint8_t* p, int bytes) {
  if (bytes == 2) return _mm_loadu_si16(p);
  if (bytes == 4) return _mm_loadu_si32(p);
  if (bytes == 8) return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  if (bytes == 16) return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  alignas(16) uint8_t padded[16] = {};
  __builtin_memcpy(padded, p, static_cast<unsigned long>(bytes));
  return _mm_load_si128(reinterpret_cast<const __m128i*>(padded));
}

inline short word_at(const uint8_t* p) {
  short word = 0;
  __builtin_memcpy(&word, p, sizeof(word));
  return word;
}

template <Format kScale>
inline Float broadcast_scale(const uint8_t* p) {
  if constexpr (kScale == Format::kF16) {
    return _mm256_cvtph_ps(_mm_set1_epi16(word_at(p)));
  } else if constexpr (kScale == Format::kBF16) {
    return bf16_to_float(_mm_set1_epi16(word_at(p)));
  } else if constexpr (kScale == Format::kE8M0) {
    return e8m0_to_float(_mm256_set1_epi32(*p));
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
    return permute(_mm256_cvtph_ps(load_part(p, 2 * count)), lanes);
  } else if constexpr (kScale == Format::kBF16) {
    return permute(bf16_to_float(load_part(p, 2 * count)), lanes);
  } else if constexpr (kScale == Format::kE8M0) {
    return permute(e8m0_to_float(_mm256_cvtepu8_epi32(load_part(p, count))), lanes);
  } else {
    static_assert(kScale == Format::kF32);
    const __m256i all = _mm256_maskload_epi32(reinterpret_cast<const int*>(p), first_lanes(count));
    return permute(_mm256_castsi256_ps(all), lanes);
  }
}

template <Zero kZero>
inline Float broadcast_zero(const uint8_t* p) {
  if constexpr (kZero == Zero::kU8) {
    return _mm256_cvtepi32_ps(_mm256_set1_epi32(*p));
  } else {
    static_assert(kZero == Zero::kU16);
    return _mm256_cvtepi32_ps(_mm256_cvtepu16_epi32(_mm_set1_epi16(word_at(p))));
  }
}

template <Zero kZero>
inline Float spread_zeros(const uint8_t* p, int count, Lanes lanes) {
  if constexpr (kZero == Zero::kU8) {
    return permute(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(load_part(p, count))), lanes);
  } else {
    static_assert(kZero == Zero::kU16);
    return permute(_mm256_cvtepi32_ps(_mm256_cvtepu16_epi32(load_part(p, 2 * count))), lanes);
  }
}

}  // namespace
}  // namespace subbyte::cpu::avx2
