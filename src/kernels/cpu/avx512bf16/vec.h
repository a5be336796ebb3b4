#pragma once
// What AVX-512 with BF16, VNNI and VBMI adds to the vocabulary of avx512/vec.h.

#include "kernels/cpu/avx512/vec.h"

namespace subbyte::cpu::avx512bf16 {
namespace {

using namespace avx512;  // the same registers and names

/// add(), for members of classes that have an add() of their own.
inline Float plus(Float a, Float b) {
  return add(a, b);
}

using Pairs = __m512i;  // two bf16 for each lane

inline Pairs load_pairs(const uint8_t* p) {
  return _mm512_loadu_si512(p);
}
inline void store_pairs(uint8_t* p, Pairs v) {
  _mm512_storeu_si512(p, v);
}

/// sum + a0 * x0 + a1 * x1 in each lane. Every addition rounds to nearest; subnormal bf16 count as
/// zero.
inline Float dot_pairs(Float sum, Pairs a, Pairs x) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(x));
}

/// bf16, to nearest, ties to even: `low` in the lower halves of the lanes and `high` in the upper.
/// NaN stays NaN.
inline Pairs round_to_pairs(Float low, Float high) {
  // Words 0 to 15 come from the second argument; then they are dealt out in turn.
  const auto words = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
  const __m512i first = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(words));
  const __m512i second = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(words, 1));
  return _mm512_or_si512(first, _mm512_slli_epi32(second, 16));
}
inline Float low_of_pairs(Pairs v) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
}
inline Float high_of_pairs(Pairs v) {
  return _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32(static_cast<int>(0xFFFF0000u))));
}

}  // namespace
}  // namespace subbyte::cpu::avx512bf16
