#pragma once
// What BF16 adds to the vocabulary of avx512vnni/vec.h.

#include "kernels/cpu/avx512vnni/vec.h"

namespace subbyte::cpu::avx512bf16 {
namespace {

using namespace avx512;  // the same registers and names
using namespace avx512vnni;

using Bf16x2 = __m512i;  // two bf16 for each lane

inline Bf16x2 load_bf16x2(const uint8_t* p) {
  return _mm512_loadu_si512(p);
}
inline void store_bf16x2(uint8_t* p, Bf16x2 v) {
  _mm512_storeu_si512(p, v);
}

/// sum + a0 * x0 + a1 * x1 in each lane. Every addition rounds to nearest; subnormal bf16 count as
/// zero.
inline Float dot_bf16x2(Float sum, Bf16x2 a, Bf16x2 x) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(x));
}

/// bf16, to nearest, ties to even: `low` in the lower halves of the lanes and `high` in the upper.
/// NaN stays NaN.
inline Bf16x2 round_to_bf16x2(Float low, Float high) {
  // Words 0 to 15 come from the second argument; then they are dealt out in turn.
  const __m512i turns =
      _mm512_setr_epi32(0x00100000, 0x00110001, 0x00120002, 0x00130003, 0x00140004, 0x00150005,
                        0x00160006, 0x00170007, 0x00180008, 0x00190009, 0x001A000A, 0x001B000B,
                        0x001C000C, 0x001D000D, 0x001E000E, 0x001F000F);
  return _mm512_permutexvar_epi16(turns, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
}
/// The same of floats that bf16 holds: a third of the instructions.
inline Bf16x2 upper_halves(Float low, Float high) {
  return _mm512_ternarylogic_epi32(_mm512_srli_epi32(_mm512_castps_si512(low), 16),
                                   _mm512_castps_si512(high),
                                   _mm512_set1_epi32(static_cast<int>(0xFFFF0000u)),
                                   0xF8);  // a | (b & c)
}
inline Float low_of_bf16x2(Bf16x2 v) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
}
inline Float high_of_bf16x2(Bf16x2 v) {
  return _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32(static_cast<int>(0xFFFF0000u))));
}

/// sum += the products of two bf16 a lane, as dot_bf16x2(), spelled out as add_dot_bytes() is.
[[gnu::always_inline]] inline void add_dot_bf16x2(Float& sum, Bf16x2 a, Bf16x2 x) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(x));
}

}  // namespace
}  // namespace subbyte::cpu::avx512bf16
