#pragma once
// What AVX-512 with VNNI and VBMI adds to the vocabulary of avx512/vec.h.

#include "kernels/cpu/avx512/vec.h"

namespace subbyte::cpu::avx512vnni {
namespace {

using namespace avx512;  // the same registers and names

/// add(), for members of classes that have an add() of their own.
inline Float plus(Float a, Float b) {
  return add(a, b);
}

inline Int max_int(Int a, Int b) {
  return _mm512_max_epi32(a, b);
}

/// Dot products of bytes, for codes of any bits. add_k8() is that of the eight codes of a lane with
/// an even and an odd half.
struct ByteDots {
  static constexpr bool kIsSigned = false;
  static Int stored(Int codes) { return codes; }
  /// sum += the products of four bytes a lane, a unsigned and x signed. Spelled out, because g++ 12
  /// copies the sums of a loop from register to register around the intrinsic.
  [[gnu::always_inline]] static void add(Int& sum, Int a, Int x) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(x));
  }
  static Float to_float(Int sum) { return int_to_float(sum); }
  template <class Codes>
  static Int add_k8(const Codes& codes, Int even, Int odd, Int sum) {
    return _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(sum, codes.even, even), codes.odd, odd);
  }
};
template <class Bytes>
using DotsOf = ByteDots;
constexpr int kDotRowsAtOnce = 6;  // of activations, which meet a panel together

/// The four bytes at p in every lane.
inline Int broadcast_word(const uint8_t* p) {
  int word;
  __builtin_memcpy(&word, p, 4);
  return _mm512_set1_epi32(word);
}

/// In each lane the largest, or the sum, of the four lanes of its quarter of a vector.
inline Float max_of_4_lanes(Float v) {
  const Float twos = max(v, _mm512_permute_ps(v, 0x4E));
  return max(twos, _mm512_permute_ps(twos, 0xB1));
}
inline Float sum_of_4_lanes(Float v) {
  const Float twos = add(v, _mm512_permute_ps(v, 0x4E));
  return add(twos, _mm512_permute_ps(twos, 0xB1));
}

/// A power of two such that numbers up to `largest` are at most 2^kBits times it, and its
/// reciprocal; at least 2^-126.
struct LimbScale {
  float scale;
  float inverse;
};
template <int kBits>
inline LimbScale limb_scale(Float largest) {
  const float most = _mm512_reduce_max_ps(largest);
  const int exponent = static_cast<int>(__builtin_bit_cast(uint32_t, most) >> 23);  // biased
  const uint32_t scale = exponent < kBits ? 1 : static_cast<uint32_t>(exponent - kBits + 1);
  return {__builtin_bit_cast(float, scale << 23), __builtin_bit_cast(float, (254 - scale) << 23)};
}
/// v = limbs[0] + limbs[1] * 2^8 and so on, all but the last from -128 to 127.
template <int kLimbs>
inline void split_limbs(Int v, Int (&limbs)[kLimbs]) {
#pragma GCC unroll 3
  for (int i = 0; i + 1 < kLimbs; ++i) {
    const __m512i upper = _mm512_srai_epi32(_mm512_add_epi32(v, _mm512_set1_epi32(128)), 8);
    limbs[i] = _mm512_sub_epi32(v, _mm512_slli_epi32(upper, 8));
    v = upper;
  }
  limbs[kLimbs - 1] = v;
}
inline int sum_lanes(Int v) {
  return _mm512_reduce_add_epi32(v);
}

/// Calls store(j, the lanes from[i][j] of all i), kLanes by kLanes of any contents; rows are that
/// many floats apart.
template <class Store>
[[gnu::always_inline]] inline void transposed_lanes(const float* from, int64_t from_stride,
                                                    const Store& store) {
  __m512i a[16], b[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) a[i] = _mm512_loadu_si512(from + from_stride * i);
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {  // lanes of two rows in turn
    b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {  // of four rows: a[i + k] has column 4 q + k in quarter q
    a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
    a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
    a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
    a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
  }
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) {
    const __m512i low01 = _mm512_shuffle_i32x4(a[k], a[4 + k], 0x44);
    const __m512i low23 = _mm512_shuffle_i32x4(a[k], a[4 + k], 0xEE);
    const __m512i high01 = _mm512_shuffle_i32x4(a[8 + k], a[12 + k], 0x44);
    const __m512i high23 = _mm512_shuffle_i32x4(a[8 + k], a[12 + k], 0xEE);
    store(k, _mm512_shuffle_i32x4(low01, high01, 0x88));
    store(4 + k, _mm512_shuffle_i32x4(low01, high01, 0xDD));
    store(8 + k, _mm512_shuffle_i32x4(low23, high23, 0x88));
    store(12 + k, _mm512_shuffle_i32x4(low23, high23, 0xDD));
  }
}

/// to[j][i] = from[i][j]
inline void transpose_lanes(const float* from, int64_t from_stride, float* to, int64_t stride) {
  transposed_lanes(from, from_stride,
                   [&](int64_t j, Int lanes) { _mm512_storeu_si512(to + stride * j, lanes); });
}
inline void transpose_lanes(const float* from, float* to) {
  transpose_lanes(from, 16, to, 16);
}

}  // namespace
}  // namespace subbyte::cpu::avx512vnni
