#pragma once
// The vector vocabulary for AVX2 with FMA and F16C. Every instruction set has a vec.h with these
// names; generic/ is written against them. Here and in what includes this file nothing of the
// standard library may be called: see cmake/SubbyteIsa.cmake.

#include <immintrin.h>

#include <cstdint>

namespace subbyte::cpu::avx2 {
namespace {

constexpr int kLanes = 8;
using Float = __m256;
using Int = __m256i;    // 32-bit integers, or bytes, four to a lane
using Lanes = __m256i;  // for each lane an index into another vector

constexpr int kGemmTileOutputs = 4;  // a multiple of 4

#include "kernels/cpu/generic/vector_words.inl.h"

inline Int broadcast_int(uint32_t bits) {
  return _mm256_set1_epi32(static_cast<int>(bits));
}
inline Int add_int(Int a, Int b) {
  return _mm256_add_epi32(a, b);
}
inline Int sub_int(Int a, Int b) {
  return _mm256_sub_epi32(a, b);
}
inline Int and_bits(Int v, uint32_t bits) {
  return _mm256_and_si256(v, broadcast_int(bits));
}
inline Int xor_bits(Int v, uint32_t bits) {
  return _mm256_xor_si256(v, broadcast_int(bits));
}
inline Int or_bits(Int a, Int b) {
  return _mm256_or_si256(a, b);
}
template <int n>
inline Int shift_left(Int v) {
  return _mm256_slli_epi32(v, n);
}
template <int n>
inline Int shift_right(Int v) {
  return _mm256_srli_epi32(v, n);
}
/// The sign comes in from the left.
template <int n>
inline Int shift_right_signed(Int v) {
  return _mm256_srai_epi32(v, n);
}
inline Float int_to_float(Int v) {
  return _mm256_cvtepi32_ps(v);
}
inline Float broadcast(float value) {
  return _mm256_set1_ps(value);
}
inline Float load(const float* p) {
  return _mm256_loadu_ps(p);
}
inline Int widen_bytes(__m128i bytes) {
  return _mm256_cvtepu8_epi32(bytes);
}
inline Int widen_words(__m128i words) {
  return _mm256_cvtepu16_epi32(words);
}
inline Float bf16_to_float(__m128i bits) {
  return float_of_bits(shift_left<16>(widen_words(bits)));
}
inline Float load_bf16(const uint8_t* p) {
  return bf16_to_float(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline Float f16_to_float(__m128i bits) {
  return _mm256_cvtph_ps(bits);
}
inline Float load_f16(const uint8_t* p) {
  return f16_to_float(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline Float load_f32(const uint8_t* p) {
  return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
}
/// Four numbers from each place, or two, one after the other.
inline Float load_parts(const float* const (&p)[2]) {
  return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p[0])), _mm_loadu_ps(p[1]), 1);
}
inline __m128 load_two_parts(const float* a, const float* b) {
  const __m128d low = _mm_load_sd(reinterpret_cast<const double*>(a));
  return _mm_castpd_ps(_mm_loadh_pd(low, reinterpret_cast<const double*>(b)));
}
inline Float load_parts(const float* const (&p)[4]) {
  return _mm256_insertf128_ps(_mm256_castps128_ps256(load_two_parts(p[0], p[1])),
                              load_two_parts(p[2], p[3]), 1);
}
inline void store(float* p, Float v) {
  _mm256_storeu_ps(p, v);
}
/// a * b + c
inline Float fma(Float a, Float b, Float c) {
  return _mm256_fmadd_ps(a, b, c);
}
/// c - a * b
inline Float fnma(Float a, Float b, Float c) {
  return _mm256_fnmadd_ps(a, b, c);
}

/// a > b ? a : b, so b where one of them is NaN.
inline Float max(Float a, Float b) {
  return _mm256_max_ps(a, b);
}
inline bool are_finite(Float v) {  // all lanes
  const Float differences = sub(v, v);
  return _mm256_movemask_ps(_mm256_cmp_ps(differences, zero(), _CMP_EQ_OQ)) == 0xFF;
}
inline Float magnitude(Float v) {
  return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v);
}
inline Int max_int(Int a, Int b) {
  return _mm256_max_epi32(a, b);
}
inline Int load_int(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
inline void store_int(uint8_t* p, Int v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v);
}
/// To nearest, ties to even.
inline Int round_to_int(Float v) {
  return _mm256_cvtps_epi32(v);
}
/// Each byte < 16 of v as an index into the table.
inline Int lookup_bytes(const uint8_t (&table)[16], Int v) {
  const __m128i bytes = _mm_load_si128(reinterpret_cast<const __m128i*>(table));
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), v);
}
/// factor / v where v > floor, else 0.
inline Float reciprocal_above(Float v, float floor, float factor) {
  const Float above = _mm256_cmp_ps(v, _mm256_set1_ps(floor), _CMP_GT_OQ);
  return _mm256_and_ps(above, _mm256_div_ps(_mm256_set1_ps(factor), v));
}
/// In each lane the largest, or the sum, of the four lanes of its half of a vector.
inline Float max_of_4_lanes(Float v) {
  const Float twos = max(v, _mm256_permute_ps(v, 0x4E));
  return max(twos, _mm256_permute_ps(twos, 0xB1));
}
inline Float sum_of_4_lanes(Float v) {
  const Float twos = add(v, _mm256_permute_ps(v, 0x4E));
  return add(twos, _mm256_permute_ps(twos, 0xB1));
}
/// The four bytes at p in every lane.
inline Int broadcast_word(const uint8_t* p) {
  int word;
  __builtin_memcpy(&word, p, 4);
  return _mm256_set1_epi32(word);
}

/// Codes in bytes, those with even and with odd numbers.
struct ByteCodes {
  Int even;
  Int odd;
};
constexpr int kDotRowsAtOnce = 3;  // of activations, which meet a panel together
// Rows of weights that meet a limb together: one, and what it meets, take all registers.
constexpr int kLimbRowsAtOnce = 1;

/// sums[r] += the products of eight bytes a lane: codes are unsigned and at most 31, x signed, so
/// that sums of four fit into 16 bits.
template <int kRows>
[[gnu::always_inline]] inline void add_k8_products(const ByteCodes (&codes)[kRows], Int even,
                                                   Int odd, Int (&sums)[kRows]) {
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const Int fours = _mm256_add_epi16(_mm256_maddubs_epi16(codes[r].even, even),
                                       _mm256_maddubs_epi16(codes[r].odd, odd));
    sums[r] = _mm256_add_epi32(sums[r], _mm256_madd_epi16(fours, _mm256_set1_epi16(1)));
  }
}

/// Sums of neighbouring halves.
inline Int sum_of_halves(Int v) {
  return _mm256_madd_epi16(v, _mm256_set1_epi16(1));
}

// Products of bytes, codes by activations from -127 to 127, as dot_panels.inl.h takes them; and
// add_k8(), which is that of the eight codes of a lane with an even and an odd half.

/// sum += v. Spelled out, because g++ 12 copies the sums of a loop from register to register around
/// the intrinsic.
[[gnu::always_inline]] inline void add_words(Int& sum, Int v) {
  asm("vpaddd %1, %0, %0" : "+x"(sum) : "x"(v));
}

/// Codes up to 15: sums of 16 products fit into 16 bits, 15 * 127 * 16 being below 2^15. So a
/// span's are added there.
struct NibbleDots {
  static constexpr bool kIsSigned = false;
  static Int stored(Int codes) { return codes; }
  static void add(Int& sum, Int a, Int x) {  // spelled out as add_words() is
    const Int twos = _mm256_maddubs_epi16(a, x);
    asm("vpaddw %1, %0, %0" : "+x"(sum) : "x"(twos));
  }
  static Float to_float(Int sum) { return int_to_float(sum_of_halves(sum)); }
  static Int add_k8(const ByteCodes& codes, Int even, Int odd, Int sum) {
    const Int fours = _mm256_add_epi16(_mm256_maddubs_epi16(codes.even, even),
                                       _mm256_maddubs_epi16(codes.odd, odd));
    return _mm256_add_epi32(sum, sum_of_halves(fours));
  }
};

/// Codes up to 63, of which sums of four fit.
struct ShortDots : NibbleDots {
  static void add(Int& sum, Int a, Int x) {
    add_words(sum, sum_of_halves(_mm256_maddubs_epi16(a, x)));
  }
  static Float to_float(Int sum) { return int_to_float(sum); }
};

/// Codes of eight bits, less 128: the magnitudes of codes by activations with their signs, of which
/// sums of two fit, 128 * 127 * 2 being below 2^15.
struct SignedDots {
  static constexpr bool kIsSigned = true;
  static Int stored(Int codes) { return xor_bits(codes, 0x80808080u); }
  static void add(Int& sum, Int a, Int x) {
    add_words(sum, sum_of_halves(_mm256_maddubs_epi16(_mm256_abs_epi8(a), _mm256_sign_epi8(x, a))));
  }
  static Float to_float(Int sum) { return int_to_float(sum); }
  static Int add_k8(const ByteCodes& codes, Int even, Int odd, Int sum) {
    add(sum, stored(codes.even), even);
    add(sum, stored(codes.odd), odd);
    return sum;
  }
};

/// Those for what K8Bytes decodes to.
template <class Bytes>
struct DotsOfBytes {
  using Type = ShortDots;
};
template <class Bytes>
requires(Bytes::kShift == 3) struct DotsOfBytes<Bytes> {
  using Type = NibbleDots;
};
template <class Bytes>
requires(Bytes::kShift == 7) struct DotsOfBytes<Bytes> {
  using Type = SignedDots;
};
template <class Bytes>
using DotsOf = typename DotsOfBytes<Bytes>::Type;

inline __m256i lane_numbers() {
  return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
}

/// All bits of the lanes before `count`.
inline __m256i first_lanes(int count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), lane_numbers());
}

/// The first `count` <= kLanes floats at p, then zeros. Nothing after them is touched.
inline Float load_part(const float* p, int64_t count) {
  return _mm256_maskload_ps(p, first_lanes(static_cast<int>(count)));
}
inline void store_part(float* p, Float v, int64_t count) {
  _mm256_maskstore_ps(p, first_lanes(static_cast<int>(count)), v);
}

/// Lanes from `count` on become zero.
inline Float keep_first(Float v, int count) {
  return _mm256_and_ps(v, _mm256_castsi256_ps(first_lanes(count)));
}

/// Lane i: (first + i) / divisor. Exact: the quotients stay 0.5 / divisor away from integers.
inline Lanes divided_lanes(int first, int divisor) {
  const Float n = _mm256_cvtepi32_ps(_mm256_add_epi32(lane_numbers(), _mm256_set1_epi32(first)));
  const Float half = _mm256_add_ps(n, _mm256_set1_ps(0.5f));
  return _mm256_cvttps_epi32(_mm256_div_ps(half, _mm256_set1_ps(static_cast<float>(divisor))));
}

inline Float permute(Float v, Lanes lanes) {
  return _mm256_permutevar8x32_ps(v, lanes);
}

/// The sums of four vectors: each lane of each vector meets the same additions in the same order.
inline void sum4(const Float* v, float* sums) {
  const Float ab = _mm256_hadd_ps(v[0], v[1]);
  const Float cd = _mm256_hadd_ps(v[2], v[3]);
  const Float abcd = _mm256_hadd_ps(ab, cd);
  _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(abcd), _mm256_extractf128_ps(abcd, 1)));
}

/// Calls store(j, the lanes from[i][j] of all i), kLanes by kLanes of any contents; rows are that
/// many floats apart.
template <class Store>
[[gnu::always_inline]] inline void transposed_lanes(const float* from, int64_t from_stride,
                                                    const Store& store) {
  Float rows[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) rows[i] = _mm256_loadu_ps(from + from_stride * i);
  Float pairs[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);      // columns 0, 1 | 4, 5
    pairs[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);  // columns 2, 3 | 6, 7
  }
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {  // columns 2h, 2h + 1 and four more
    const Float e0 = _mm256_shuffle_ps(pairs[h], pairs[h + 2], 0x44);
    const Float e1 = _mm256_shuffle_ps(pairs[h], pairs[h + 2], 0xEE);
    const Float f0 = _mm256_shuffle_ps(pairs[h + 4], pairs[h + 6], 0x44);
    const Float f1 = _mm256_shuffle_ps(pairs[h + 4], pairs[h + 6], 0xEE);
    store(2 * h, bits_of(_mm256_permute2f128_ps(e0, f0, 0x20)));
    store(2 * h + 1, bits_of(_mm256_permute2f128_ps(e1, f1, 0x20)));
    store(2 * h + 4, bits_of(_mm256_permute2f128_ps(e0, f0, 0x31)));
    store(2 * h + 5, bits_of(_mm256_permute2f128_ps(e1, f1, 0x31)));
  }
}
/// to[j][i] = from[i][j]
inline void transpose_lanes(const float* from, int64_t from_stride, float* to, int64_t stride) {
  transposed_lanes(
      from, from_stride, [&](int64_t j, Int lanes) __attribute__((always_inline)) {
        _mm256_storeu_ps(to + stride * j, float_of_bits(lanes));
      });
}

/// x holds kLanes runs of 8; vector j of `out` gets element j of each.
inline void transpose_k8(const float* x, Float* out) {
  transposed_lanes(
      x, 8, [&](int64_t j, Int lanes) __attribute__((always_inline)) {
        out[j] = float_of_bits(lanes);
      });
}

}  // namespace
}  // namespace subbyte::cpu::avx2
