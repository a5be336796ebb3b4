#pragma once
// The vector vocabulary of generic/elementwise.inl.h and generic/attention.inl.h, that of AVX-512,
// and what attention_tiles.inl.h needs besides.

#include "kernels/cpu/amx/vec.h"
#include "kernels/cpu/avx512/vector_math.h"

namespace subbyte::cpu::amx {
namespace {

/// In each lane the larger magnitude, NaN being the largest; top is not negative.
inline Float larger_magnitude(Float top, Float v) {
  const __m512i bits = _mm512_castps_si512(_mm512_abs_ps(v));
  return _mm512_castsi512_ps(_mm512_max_epu32(_mm512_castps_si512(top), bits));
}
/// Says whether all lanes, which are not negative, are below the limit: NaN is not.
inline bool all_below(Float magnitudes, float limit) {
  return _mm512_cmp_ps_mask(magnitudes, _mm512_set1_ps(limit), _CMP_NLT_UQ) == 0;
}
inline bool same_lanes(Float a, Float b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_NEQ_UQ) == 0;
}
/// a > b ? v : other
inline Float above_or(Float a, Float b, Float v, Float other) {
  return _mm512_mask_mov_ps(other, _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), v);
}
/// first <= x < last ? v : other
inline Float between_or(float x, Float first, Float last, Float v, Float other) {
  const Float at = _mm512_set1_ps(x);
  const __mmask16 below = _mm512_cmp_ps_mask(at, last, _CMP_LT_OQ);
  return _mm512_mask_mov_ps(other, _mm512_mask_cmp_ps_mask(below, at, first, _CMP_GE_OQ), v);
}

/// v * 2^n where n > least or NaN, else 0.
inline Float times_power_above(Float v, Float n, float least) {
  const __mmask16 above = _mm512_cmp_ps_mask(n, _mm512_set1_ps(least), _CMP_NLE_UQ);
  return _mm512_maskz_scalef_ps(above, v, n);
}

/// Numbers as a sum of two bf16: v = hi + lo, where `hi` has the upper halves.
struct SplitBf16x2 {
  Bf16x2 hi, lo;
};
inline SplitBf16x2 zero_split() {
  return {_mm512_setzero_si512(), _mm512_setzero_si512()};
}
/// a in the lower halves of the lanes, b in the upper. Both are rounded to nearest, ties away
/// from zero, which takes an addition. Of finite numbers that do not overflow.
inline SplitBf16x2 split_to_bf16x2(Float a, Float b) {
  constexpr __mmask32 kUpper = 0xAAAAAAAA;
  const __m512i half = _mm512_set1_epi32(0x8000);
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xFFFF0000u));
  const __m512i high_a = _mm512_add_epi32(_mm512_castps_si512(a), half);
  const __m512i high_b = _mm512_add_epi32(_mm512_castps_si512(b), half);
  const Float rest_a = sub(a, _mm512_castsi512_ps(_mm512_and_si512(high_a, upper)));
  const Float rest_b = sub(b, _mm512_castsi512_ps(_mm512_and_si512(high_b, upper)));
  const __m512i low_a = _mm512_add_epi32(_mm512_castps_si512(rest_a), half);
  const __m512i low_b = _mm512_add_epi32(_mm512_castps_si512(rest_b), half);
  return {_mm512_mask_blend_epi16(kUpper, _mm512_srli_epi32(high_a, 16), high_b),
          _mm512_mask_blend_epi16(kUpper, _mm512_srli_epi32(low_a, 16), low_b)};
}
// Products of two by two tiles whose numbers are two bf16 each: 12 for 9 loads. (Loads are what
// other work hides least.) Both operands are [hi, lo][2] tiles, `a` at %0 and `b` at %1,
// 64 in %2, and sums %%tmm(i + 2 j) += a_i b_j. Each third of it adds to all four sums, so that
// none waits for itself; between the thirds other work has its place. `sums_N` is done to sums N
// before they are added to.
#define SUBBYTE_SPLIT_HI(sums_0, sums_1, sums_2, sums_3)                                       \
  "tileloadd (%0,%2,1), %%tmm4\n\t"                                                            \
  "tileloaddt1 (%1,%2,1), %%tmm6\n\t" sums_0                                                   \
  "tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n\t"                                                       \
  "tileloadd 1024(%0,%2,1), %%tmm5\n\t" sums_1                                                 \
  "tdpbf16ps %%tmm6, %%tmm5, %%tmm1\n\t"                                                       \
  "tileloaddt1 1024(%1,%2,1), %%tmm7\n\t" sums_2 "tdpbf16ps %%tmm7, %%tmm4, %%tmm2\n\t" sums_3 \
  "tdpbf16ps %%tmm7, %%tmm5, %%tmm3"

/// sums += hi parts of a by hi parts of b
[[gnu::always_inline]] inline void multiply_hi(const uint8_t* a, const uint8_t* b) {
  asm volatile(SUBBYTE_SPLIT_HI("", "", "", "") : : "r"(a), "r"(b), "r"(int64_t{64}) : "memory");
}
/// The same, but before the sums go to `to`, [4] tiles, and become zero.
[[gnu::always_inline]] inline void multiply_hi_from_zero(const uint8_t* a, const uint8_t* b,
                                                         float* to) {
  asm volatile(SUBBYTE_SPLIT_HI("tilestored %%tmm0, (%3,%2,1)\n\ttilezero %%tmm0\n\t",
                                "tilestored %%tmm1, 1024(%3,%2,1)\n\ttilezero %%tmm1\n\t",
                                "tilestored %%tmm2, 2048(%3,%2,1)\n\ttilezero %%tmm2\n\t",
                                "tilestored %%tmm3, 3072(%3,%2,1)\n\ttilezero %%tmm3\n\t")
               :
               : "r"(a), "r"(b), "r"(int64_t{64}), "r"(to)
               : "memory");
}
/// The same, but then they are those at `from`.
[[gnu::always_inline]] inline void multiply_hi_from(const uint8_t* a, const uint8_t* b, float* to,
                                                    const float* from) {
  asm volatile(
      SUBBYTE_SPLIT_HI("tilestored %%tmm0, (%3,%2,1)\n\ttileloaddt1 (%4,%2,1), %%tmm0\n\t",
                       "tilestored %%tmm1, 1024(%3,%2,1)\n\ttileloaddt1 1024(%4,%2,1), %%tmm1\n\t",
                       "tilestored %%tmm2, 2048(%3,%2,1)\n\ttileloaddt1 2048(%4,%2,1), %%tmm2\n\t",
                       "tilestored %%tmm3, 3072(%3,%2,1)\n\ttileloaddt1 3072(%4,%2,1), %%tmm3\n\t")
      :
      : "r"(a), "r"(b), "r"(int64_t{64}), "r"(to), "r"(from)
      : "memory");
}
#undef SUBBYTE_SPLIT_HI

/// After that: sums += hi parts of a by lo parts of b.
[[gnu::always_inline]] inline void multiply_hi_lo(const uint8_t* b) {
  asm volatile(
      "tileloaddt1 2048(%0,%1,1), %%tmm7\n\t"
      "tdpbf16ps %%tmm7, %%tmm4, %%tmm0\n\t"
      "tdpbf16ps %%tmm7, %%tmm5, %%tmm1\n\t"
      "tileloaddt1 3072(%0,%1,1), %%tmm7\n\t"
      "tdpbf16ps %%tmm7, %%tmm4, %%tmm2\n\t"
      "tdpbf16ps %%tmm7, %%tmm5, %%tmm3"
      :
      : "r"(b), "r"(int64_t{64})
      : "memory");
}
/// And after that: sums += lo parts of a by hi parts of b.
[[gnu::always_inline]] inline void multiply_lo_hi(const uint8_t* a, const uint8_t* b) {
  asm volatile(
      "tileloadd 2048(%0,%2,1), %%tmm4\n\t"
      "tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n\t"
      "tileloadd 3072(%0,%2,1), %%tmm5\n\t"
      "tdpbf16ps %%tmm6, %%tmm5, %%tmm1\n\t"
      "tileloaddt1 1024(%1,%2,1), %%tmm7\n\t"
      "tdpbf16ps %%tmm7, %%tmm4, %%tmm2\n\t"
      "tdpbf16ps %%tmm7, %%tmm5, %%tmm3"
      :
      : "r"(a), "r"(b), "r"(int64_t{64})
      : "memory");
}

inline float float_of_bf16(const uint8_t* p) {
  const int bits = p[0] << 16 | p[1] << 24;
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(bits)));
}

}  // namespace
}  // namespace subbyte::cpu::amx
