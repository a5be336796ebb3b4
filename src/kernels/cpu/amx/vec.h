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

// Machines with AMX fill the first level as fast as the second: 3 to 5 % of M = 1.
constexpr int kPrefetchLevel = 1;
constexpr int64_t kGemvPrefetchBytes = 2048;

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

// What passes by once in a panel, activations and sums, is loaded with a hint (t1) that spares the
// first-level cache for what stays: the panel.

// Tiles of weights at %0 to %3, of activations at %4, 64 in %5. Registers take turns, so that loads
// need not wait for products. `sums_N` is done to sums N before they are added to.
#define SUBBYTE_TILE_STEP(sums_0, sums_1, sums_2, sums_3) \
  "tileloaddt1 (%4,%5,1), %%tmm7\n\t"                     \
  "tileloadd (%0,%5,1), %%tmm4\n\t" sums_0                \
  "tdpbf16ps %%tmm7, %%tmm4, %%tmm0\n\t"                  \
  "tileloadd (%1,%5,1), %%tmm5\n\t" sums_1                \
  "tdpbf16ps %%tmm7, %%tmm5, %%tmm1\n\t"                  \
  "tileloadd (%2,%5,1), %%tmm6\n\t" sums_2                \
  "tdpbf16ps %%tmm7, %%tmm6, %%tmm2\n\t"                  \
  "tileloadd (%3,%5,1), %%tmm4\n\t" sums_3 "tdpbf16ps %%tmm7, %%tmm4, %%tmm3"
#define SUBBYTE_TILE_STEP_INPUTS(weights, tile_stride, x)                           \
  "r"(weights), "r"((weights) + (tile_stride)), "r"((weights) + 2 * (tile_stride)), \
      "r"((weights) + 3 * (tile_stride)), "r"(x), "r"(int64_t{64})

/// sums += four tiles of weights, `tile_stride` bytes apart, by one of activations: 16 by 32 by 16
/// bf16 each.
[[gnu::always_inline]] inline void multiply_step(const uint8_t* weights, int64_t tile_stride,
                                                 const uint8_t* x) {
  asm volatile(SUBBYTE_TILE_STEP("", "", "", "")
               :
               : SUBBYTE_TILE_STEP_INPUTS(weights, tile_stride, x)
               : "memory");
}

/// The same, but before the sums go to `to`, [4][16][16], and become zero.
[[gnu::always_inline]] inline void multiply_step_from_zero(const uint8_t* weights,
                                                           int64_t tile_stride, const uint8_t* x,
                                                           float* to) {
  asm volatile(SUBBYTE_TILE_STEP("tilestored %%tmm0, (%6,%5,1)\n\ttilezero %%tmm0\n\t",
                                 "tilestored %%tmm1, 1024(%6,%5,1)\n\ttilezero %%tmm1\n\t",
                                 "tilestored %%tmm2, 2048(%6,%5,1)\n\ttilezero %%tmm2\n\t",
                                 "tilestored %%tmm3, 3072(%6,%5,1)\n\ttilezero %%tmm3\n\t")
               :
               : SUBBYTE_TILE_STEP_INPUTS(weights, tile_stride, x), "r"(to)
               : "memory");
}

/// The same, but then they are those at `from`.
[[gnu::always_inline]] inline void multiply_step_from(const uint8_t* weights, int64_t tile_stride,
                                                      const uint8_t* x, float* to,
                                                      const float* from) {
  asm volatile(
      SUBBYTE_TILE_STEP("tilestored %%tmm0, (%6,%5,1)\n\ttileloaddt1 (%7,%5,1), %%tmm0\n\t",
                        "tilestored %%tmm1, 1024(%6,%5,1)\n\ttileloaddt1 1024(%7,%5,1), %%tmm1\n\t",
                        "tilestored %%tmm2, 2048(%6,%5,1)\n\ttileloaddt1 2048(%7,%5,1), %%tmm2\n\t",
                        "tilestored %%tmm3, 3072(%6,%5,1)\n\ttileloaddt1 3072(%7,%5,1), %%tmm3\n\t")
      :
      : SUBBYTE_TILE_STEP_INPUTS(weights, tile_stride, x), "r"(to), "r"(from)
      : "memory");
}

#undef SUBBYTE_TILE_STEP_INPUTS
#undef SUBBYTE_TILE_STEP

// Two tiles of weights at %0 and %1 by two of activations at %2 and %3, 64 in %4. Sums are loaded
// without the hint: they have been asked for, and are in the first-level cache.
#define SUBBYTE_TILE_SQUARE(sums_0, sums_1, sums_2, sums_3)                      \
  "tileloaddt1 (%2,%4,1), %%tmm6\n\ttileloadd (%0,%4,1), %%tmm4\n\t" sums_0      \
  "tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n\ttileloaddt1 (%3,%4,1), %%tmm7\n\t" sums_1 \
  "tdpbf16ps %%tmm7, %%tmm4, %%tmm1\n\ttileloadd (%1,%4,1), %%tmm5\n\t" sums_2   \
  "tdpbf16ps %%tmm6, %%tmm5, %%tmm2\n\t" sums_3 "tdpbf16ps %%tmm7, %%tmm5, %%tmm3"
#define SUBBYTE_TILE_SQUARE_INPUTS(weights, tile_stride, x0, x1) \
  "r"(weights), "r"((weights) + (tile_stride)), "r"(x0), "r"(x1), "r"(int64_t{64})

/// sums += two tiles of weights, `tile_stride` bytes apart, by the activations at x0 and x1. Sum
/// 2 i + j is that of weights i and activations j.
[[gnu::always_inline]] inline void multiply_square(const uint8_t* weights, int64_t tile_stride,
                                                   const uint8_t* x0, const uint8_t* x1) {
  asm volatile(SUBBYTE_TILE_SQUARE("", "", "", "")
               :
               : SUBBYTE_TILE_SQUARE_INPUTS(weights, tile_stride, x0, x1)
               : "memory");
}

/// The same, but before the sums go to `to`, [4][16][16], and become zero.
[[gnu::always_inline]] inline void multiply_square_from_zero(const uint8_t* weights,
                                                             int64_t tile_stride, const uint8_t* x0,
                                                             const uint8_t* x1, float* to) {
  asm volatile(SUBBYTE_TILE_SQUARE("tilestored %%tmm0, (%5,%4,1)\n\ttilezero %%tmm0\n\t",
                                   "tilestored %%tmm1, 1024(%5,%4,1)\n\ttilezero %%tmm1\n\t",
                                   "tilestored %%tmm2, 2048(%5,%4,1)\n\ttilezero %%tmm2\n\t",
                                   "tilestored %%tmm3, 3072(%5,%4,1)\n\ttilezero %%tmm3\n\t")
               :
               : SUBBYTE_TILE_SQUARE_INPUTS(weights, tile_stride, x0, x1), "r"(to)
               : "memory");
}

/// The same, but then they are those at `from`.
[[gnu::always_inline]] inline void multiply_square_from(const uint8_t* weights, int64_t tile_stride,
                                                        const uint8_t* x0, const uint8_t* x1,
                                                        float* to, const float* from) {
  asm volatile(
      SUBBYTE_TILE_SQUARE("tilestored %%tmm0, (%5,%4,1)\n\ttileloadd (%6,%4,1), %%tmm0\n\t",
                          "tilestored %%tmm1, 1024(%5,%4,1)\n\ttileloadd 1024(%6,%4,1), %%tmm1\n\t",
                          "tilestored %%tmm2, 2048(%5,%4,1)\n\ttileloadd 2048(%6,%4,1), %%tmm2\n\t",
                          "tilestored %%tmm3, 3072(%5,%4,1)\n\ttileloadd 3072(%6,%4,1), %%tmm3\n\t")
      :
      : SUBBYTE_TILE_SQUARE_INPUTS(weights, tile_stride, x0, x1), "r"(to), "r"(from)
      : "memory");
}

#undef SUBBYTE_TILE_SQUARE_INPUTS
#undef SUBBYTE_TILE_SQUARE

/// The sums to p, [4][16][16], and back.
inline void store_sums(float* p) {
  asm volatile(
      "tilestored %%tmm0, (%0,%1,1)\n\ttilestored %%tmm1, 1024(%0,%1,1)\n\t"
      "tilestored %%tmm2, 2048(%0,%1,1)\n\ttilestored %%tmm3, 3072(%0,%1,1)"
      :
      : "r"(p), "r"(int64_t{64})
      : "memory");
}
inline void load_sums(const float* p) {
  asm volatile(
      "tileloaddt1 (%0,%1,1), %%tmm0\n\ttileloaddt1 1024(%0,%1,1), %%tmm1\n\t"
      "tileloaddt1 2048(%0,%1,1), %%tmm2\n\ttileloaddt1 3072(%0,%1,1), %%tmm3"
      :
      : "r"(p), "r"(int64_t{64})
      : "memory");
}

// Tiles of bytes, for digit_tiles.inl.h: sums 0 and 1, one for each pack of activations; codes 2
// and 3, activations 4 to 7, of two steps each.

/// The activations of one block, `pack_stride` bytes apart.
template <int kPacks>
inline void load_digit_inputs(const uint8_t* x, int64_t pack_stride) {
  asm volatile("tileloaddt1 (%0,%1,1), %%tmm4\n\ttileloaddt1 1024(%0,%1,1), %%tmm5"
               :
               : "r"(x), "r"(int64_t{64})
               : "memory");
  if constexpr (kPacks == 2) {
    asm volatile("tileloaddt1 (%0,%1,1), %%tmm6\n\ttileloaddt1 1024(%0,%1,1), %%tmm7"
                 :
                 : "r"(x + pack_stride), "r"(int64_t{64})
                 : "memory");
  }
}

/// The sums to `to`, [pack][16][16].
template <int kPacks>
inline void store_digit_sums(int32_t* to) {
  asm volatile("tilestored %%tmm0, (%0,%1,1)" : : "r"(to), "r"(int64_t{64}) : "memory");
  if constexpr (kPacks == 2) {
    asm volatile("tilestored %%tmm1, 1024(%0,%1,1)" : : "r"(to), "r"(int64_t{64}) : "memory");
  }
}

/// The sums to `to`; then they are two steps of codes by the activations.
template <int kPacks>
[[gnu::always_inline]] inline void multiply_digits(const uint8_t* codes, int32_t* to) {
  asm volatile(
      "tilestored %%tmm0, (%1,%2,1)\n\ttilezero %%tmm0\n\t"
      "tileloadd (%0,%2,1), %%tmm2\n\ttdpbusd %%tmm4, %%tmm2, %%tmm0\n\t"
      "tileloadd 1024(%0,%2,1), %%tmm3\n\ttdpbusd %%tmm5, %%tmm3, %%tmm0"
      :
      : "r"(codes), "r"(to), "r"(int64_t{64})
      : "memory");
  if constexpr (kPacks == 2) {
    asm volatile(
        "tilestored %%tmm1, 1024(%0,%1,1)\n\ttilezero %%tmm1\n\t"
        "tdpbusd %%tmm6, %%tmm2, %%tmm1\n\ttdpbusd %%tmm7, %%tmm3, %%tmm1"
        :
        : "r"(to), "r"(int64_t{64})
        : "memory");
  }
}

// Tiles of bf16, for group_tiles.inl.h: sums 0 and 1 in turns, one for each step of 32 inputs;
// weights 2 and 3; activations 4 to 7, one for each step of a block.

inline void load_group_inputs(const uint8_t* x) {
  asm volatile(
      "tileloaddt1 (%0,%1,1), %%tmm4\n\ttileloaddt1 1024(%0,%1,1), %%tmm5\n\t"
      "tileloaddt1 2048(%0,%1,1), %%tmm6\n\ttileloaddt1 3072(%0,%1,1), %%tmm7"
      :
      : "r"(x), "r"(int64_t{64})
      : "memory");
}

/// Four steps of weights by the activations. The sums of the last two steps before go to `last`,
/// those of the first two to `first`, [2][16][16] each; the others stay.
[[gnu::always_inline]] inline void multiply_groups(const uint8_t* weights, float* last,
                                                   float* first) {
  asm volatile(
      "tilestored %%tmm0, (%1,%3,1)\n\ttilezero %%tmm0\n\t"
      "tileloadd (%0,%3,1), %%tmm2\n\ttdpbf16ps %%tmm4, %%tmm2, %%tmm0\n\t"
      "tilestored %%tmm1, 1024(%1,%3,1)\n\ttilezero %%tmm1\n\t"
      "tileloadd 1024(%0,%3,1), %%tmm3\n\ttdpbf16ps %%tmm5, %%tmm3, %%tmm1\n\t"
      "tilestored %%tmm0, (%2,%3,1)\n\ttilezero %%tmm0\n\t"
      "tileloadd 2048(%0,%3,1), %%tmm2\n\ttdpbf16ps %%tmm6, %%tmm2, %%tmm0\n\t"
      "tilestored %%tmm1, 1024(%2,%3,1)\n\ttilezero %%tmm1\n\t"
      "tileloadd 3072(%0,%3,1), %%tmm3\n\ttdpbf16ps %%tmm7, %%tmm3, %%tmm1"
      :
      : "r"(weights), "r"(last), "r"(first), "r"(int64_t{64})
      : "memory");
}
inline void store_group_sums(float* last) {
  asm volatile("tilestored %%tmm0, (%0,%1,1)\n\ttilestored %%tmm1, 1024(%0,%1,1)"
               :
               : "r"(last), "r"(int64_t{64})
               : "memory");
}

/// The 32 codes of four bits at p, looked up. Word 8 l + 4 h + w is that of code 16 h + 4 l + w.
inline Pairs look_up(const uint8_t* p, Pairs table) {
  // Byte 2 w of either half of quarter l: the bits from 16 l + 4 w on. What else is in the word
  // does not count, as the table is repeated.
  const __m512i begins = _mm512_set_epi64(
      0x003C003800340030, 0x003C003800340030, 0x002C002800240020, 0x002C002800240020,
      0x001C001800140010, 0x001C001800140010, 0x000C000800040000, 0x000C000800040000);
  const __m512i codes =
      _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm512_permutexvar_epi16(_mm512_multishift_epi64_epi8(begins, codes), table);
}
/// The first, or the second, floats of the pairs of the 32 at p, in that order.
template <int kSecond>
inline Float load_looked_up(const float* p) {
  const __m512i index =
      _mm512_setr_epi32(0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30);
  return _mm512_permutex2var_ps(_mm512_loadu_ps(p),
                                _mm512_add_epi32(index, _mm512_set1_epi32(kSecond)),
                                _mm512_loadu_ps(p + 16));
}

// Half a vector: 8 floats.

inline __m256 zero_half() {
  return _mm256_setzero_ps();
}
inline __m256 load_half(const float* p) {
  return _mm256_loadu_ps(p);
}
inline void store_half(float* p, __m256 v) {
  _mm256_storeu_ps(p, v);
}
/// p[i] + p[8 + i]
inline __m256 add_halves(const float* p) {
  return _mm256_add_ps(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8));
}
inline __m256 fma_half(float a, __m256 b, __m256 c) {
  return _mm256_fmadd_ps(_mm256_set1_ps(a), b, c);
}
/// The floats p[0], p[kStride], p[2 kStride] and so on.
template <int kStride>
inline Float load_column(const float* p) {
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return _mm512_i32gather_ps(_mm512_mullo_epi32(lane, _mm512_set1_epi32(kStride)), p, 4);
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

// MXFP4 by exponents: the words of a table stand for their values times 2^125, and a scale
// subtracts what it lacks to 2^125, its code being 252. Zero, which has no sign here, stays zero,
// as the subtraction stops there.

/// What four E8M0 scales, one for each four lanes, lack to code 252, in each byte of their lanes.
inline Pairs missing_exponents(const uint8_t* scales) {
  const __m512i four =
      _mm512_set1_epi32(static_cast<int>(_mm_cvtsi128_si32(_mm_loadu_si32(scales))));
  const __m512i octets =
      _mm512_set_epi64(0x0303030303030303, 0x0303030303030303, 0x0202020202020202,
                       0x0202020202020202, 0x0101010101010101, 0x0101010101010101, 0, 0);
  return _mm512_shuffle_epi8(_mm512_sub_epi8(_mm512_set1_epi8(static_cast<char>(252)), four),
                             octets);
}
/// Whether 0.5 to 6 times each scale are normal numbers: the codes 2 to 252.
inline bool exponents_fit(Pairs missing) {
  return _mm512_cmpgt_epu8_mask(missing, _mm512_set1_epi8(static_cast<char>(250))) == 0;
}
/// 252 - code, in the place of the exponent.
inline Pairs exponent_steps(Pairs missing) {
  const __m512i high = _mm512_and_si512(missing, _mm512_set1_epi16(static_cast<short>(0xFF00)));
  return _mm512_srli_epi16(high, 1);
}
inline Pairs subtract_exponents(Pairs words, Pairs steps) {
  return _mm512_subs_epu16(words, steps);
}

/// Lane i of steps[j]: the words j and 4 + j of octet i of the 128 words at p.
inline void split_octets(const uint8_t* p, Pairs* steps) {
  const __m512i index = _mm512_setr_epi32(0x00040000, 0x000C0008, 0x00140010, 0x001C0018,  //
                                          0x00050001, 0x000D0009, 0x00150011, 0x001D0019,  //
                                          0x00060002, 0x000E000A, 0x00160012, 0x001E001A,  //
                                          0x00070003, 0x000F000B, 0x00170013, 0x001F001B);
  __m512i four[4];  // octets 4 i to 4 i + 3, step j in quarter j
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    four[i] = _mm512_permutexvar_epi16(index, _mm512_loadu_si512(p + 64 * i));
  }
  const __m512i low01 = _mm512_shuffle_i32x4(four[0], four[1], 0x44);
  const __m512i low23 = _mm512_shuffle_i32x4(four[2], four[3], 0x44);
  const __m512i high01 = _mm512_shuffle_i32x4(four[0], four[1], 0xEE);
  const __m512i high23 = _mm512_shuffle_i32x4(four[2], four[3], 0xEE);
  steps[0] = _mm512_shuffle_i32x4(low01, low23, 0x88);
  steps[1] = _mm512_shuffle_i32x4(low01, low23, 0xDD);
  steps[2] = _mm512_shuffle_i32x4(high01, high23, 0x88);
  steps[3] = _mm512_shuffle_i32x4(high01, high23, 0xDD);
}

}  // namespace
}  // namespace subbyte::cpu::amx
