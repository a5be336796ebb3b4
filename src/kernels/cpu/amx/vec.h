#pragma once
// What AMX adds to the vocabulary of avx512bf16/vec.h: tiles of 16 rows by 64 bytes.
//
//   tiles 0 to 3   sums: 4 tiles of weights by one of activations
//   tiles 4 to 6   weights; tile 7: activations
//
// The instructions are spelled out, because the intrinsics of g++ 12 do not tell the compiler
// which memory they read and write: stores before them were dropped or came too late.

#include "kernels/cpu/avx512bf16/vec.h"

namespace subbyte::cpu::amx {
namespace {

using namespace avx512;
using namespace avx512bf16;

/// Tiles are set up when it begins and given back when it ends: what a thread still holds is saved
/// at every switch.
class TileSession {
 public:
  TileSession() {
    struct {
      uint8_t palette = 1;
      uint8_t start_row = 0;
      uint8_t reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } config;
    static_assert(sizeof(config) == 64);
    asm volatile("ldtilecfg %0" : : "m"(config) : "memory");
  }
  TileSession(const TileSession&) = delete;
  TileSession& operator=(const TileSession&) = delete;
  ~TileSession() { asm volatile("tilerelease" : : : "memory"); }
};

inline void zero_tiles() {
  asm volatile("tilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3" : : :);
}

/// sums += four tiles of weights, `tile_stride` bytes apart, by one of activations: 16 by 32 by 16
/// bf16 each. Registers take turns, so that loads need not wait for products.
[[gnu::always_inline]] inline void multiply_step(const uint8_t* weights, int64_t tile_stride,
                                                 const uint8_t* x) {
  const int64_t stride = 64;
  const uint8_t* w1 = weights + tile_stride;
  const uint8_t* w2 = w1 + tile_stride;
  const uint8_t* w3 = w2 + tile_stride;
  asm volatile(
      "tileloadd (%4,%5,1), %%tmm7\n\t"
      "tileloadd (%0,%5,1), %%tmm4\n\t"
      "tdpbf16ps %%tmm7, %%tmm4, %%tmm0\n\t"
      "tileloadd (%1,%5,1), %%tmm5\n\t"
      "tdpbf16ps %%tmm7, %%tmm5, %%tmm1\n\t"
      "tileloadd (%2,%5,1), %%tmm6\n\t"
      "tdpbf16ps %%tmm7, %%tmm6, %%tmm2\n\t"
      "tileloadd (%3,%5,1), %%tmm4\n\t"
      "tdpbf16ps %%tmm7, %%tmm4, %%tmm3"
      :
      : "r"(weights), "r"(w1), "r"(w2), "r"(w3), "r"(x), "r"(stride)
      : "memory");
}

/// The sums to p, [4][16][16], and back.
inline void store_sums(float* p) {
  const int64_t stride = 64;
  asm volatile(
      "tilestored %%tmm0, (%0,%4,1)\n\ttilestored %%tmm1, (%1,%4,1)\n\t"
      "tilestored %%tmm2, (%2,%4,1)\n\ttilestored %%tmm3, (%3,%4,1)"
      :
      : "r"(p), "r"(p + 256), "r"(p + 2 * 256), "r"(p + 3 * 256), "r"(stride)
      : "memory");
}
inline void load_sums(const float* p) {
  const int64_t stride = 64;
  asm volatile(
      "tileloadd (%0,%4,1), %%tmm0\n\ttileloadd (%1,%4,1), %%tmm1\n\t"
      "tileloadd (%2,%4,1), %%tmm2\n\ttileloadd (%3,%4,1), %%tmm3"
      :
      : "r"(p), "r"(p + 256), "r"(p + 2 * 256), "r"(p + 3 * 256), "r"(stride)
      : "memory");
}

/// 16 floats rounded to bf16, twice over.
inline Pairs round_and_repeat(Float v) {
  return _mm512_broadcast_i64x4(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v)));
}

/// The 2^kBits words at p, over and over.
template <int kBits>
inline Pairs repeat_pairs(const uint16_t* p) {
  if constexpr (kBits == 4) {
    return _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  } else if constexpr (kBits == 3) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  } else {
    return _mm512_broadcastq_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
}

/// Whether 0.5 to 6 times each of these four E8M0 scales are normal numbers.
inline bool exponents_fit(const uint8_t* scales) {
  for (int i = 0; i < 4; ++i) {
    if (scales[i] < 2 || scales[i] > 252) return false;
  }
  return true;
}
/// What these four scales, of four octets each, add to the exponent of both bf16 of a lane.
inline Pairs exponent_steps(const uint8_t* scales) {
  const __m128i four = _mm_loadu_si32(scales);
  const __m128i octets =
      _mm_shuffle_epi8(four, _mm_setr_epi8(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3));
  const __m512i powers = _mm512_sub_epi32(_mm512_cvtepu8_epi32(octets), _mm512_set1_epi32(127));
  const __m512i low = _mm512_and_si512(_mm512_slli_epi32(powers, 7), _mm512_set1_epi32(0xFFFF));
  return _mm512_or_si512(low, _mm512_slli_epi32(low, 16));
}
/// Zeros stay zero.
inline Pairs add_exponents(Pairs v, Pairs steps) {
  const __mmask32 numbers = _mm512_test_epi16_mask(v, _mm512_set1_epi16(0x7FFF));
  return _mm512_mask_add_epi16(v, numbers, v, steps);
}

/// The first `count` <= 16 lanes to p.
inline void store_first(float* p, Float v, int64_t count) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << count) - 1), v);
}

/// to[j][i] = from[i][j], 16 by 16 lanes of any contents.
inline void transpose_16x16(const float* from, float* to) {
  __m512i a[16], b[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) a[i] = _mm512_loadu_si512(from + 16 * i);
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
    _mm512_storeu_si512(to + 16 * k, _mm512_shuffle_i32x4(low01, high01, 0x88));
    _mm512_storeu_si512(to + 16 * (4 + k), _mm512_shuffle_i32x4(low01, high01, 0xDD));
    _mm512_storeu_si512(to + 16 * (8 + k), _mm512_shuffle_i32x4(low23, high23, 0x88));
    _mm512_storeu_si512(to + 16 * (12 + k), _mm512_shuffle_i32x4(low23, high23, 0xDD));
  }
}

}  // namespace
}  // namespace subbyte::cpu::amx
