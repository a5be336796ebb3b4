#pragma once
// What AMX adds to the vocabulary of avx512bf16/vec.h: tiles, and how codes become their rows.

#include "kernels/cpu/amx/tiles.h"
#include "kernels/cpu/generic/constant_table.h"

namespace subbyte::cpu::amx {
namespace {

// Machines with AMX fill the first level as fast as the second: 3 to 5 % of M = 1.
constexpr bool kGemvRowsAdjoin = false;
constexpr int kPrefetchLevel = 1;
constexpr int64_t kGemvPrefetchDistance = 2048;

// A row of a tile of bf16 is a step: 32 inputs that follow each other, four runs of 8. Lane 4 l + n
// of it holds the inputs 8 n + l and 8 n + 4 + l, so that word w = 8 l + 2 n + e is
//
//   input_of_word(w) = 8 n + 4 e + l
//
// It is an order in which codes of four bits come apart with one shift, as those of lane-quarter l
// are the l-th of the 16 bits of every word, and in which vectors of floats, k8 by k8,
// become steps by whole quarters.
constexpr int input_of_word(int w) {
  return 8 * (w / 2 % 4) + 4 * (w % 2) + w / 8;
}

constexpr auto kStepInputs = make_table<uint16_t, 32>([](int w) { return input_of_word(w); });

/// How far the bytes of each word are to be shifted until its code is at the right end.
template <int kBits>
constexpr auto kCodeShifts = make_table<uint16_t, 32>([](int w) {
  return kBits == 4 ? 4 * (w / 8) : kBits * input_of_word(w) % 8;
});

/// Which two of the bytes from kSkipped before a step on have the code of each word.
template <int kBits, int kSkipped>
constexpr auto kCodeBytes = make_table<uint8_t, 64>([](int i) {
  return kSkipped + kBits * input_of_word(i / 2) / 8 + i % 2;
});

/// The codes of one step of a block in the low bits of words. What else is in the words does not
/// count for look_up(), as tables are repeated. Nothing after the block is read.
template <int kBits, int kStep>
[[gnu::always_inline]] inline Bf16x2 code_words(const uint8_t* block) {
  const uint8_t* p = block + 4 * kBits * kStep;
  Int bytes;
  if constexpr (kBits == 4) {
    bytes = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  } else {
    // The loads of three and of five bits are longer than a step: the last begins earlier.
    constexpr int kSkipped = kStep < 3 || kBits == 2 ? 0 : kBits == 3 ? 4 : 12;
    const uint8_t* from = p - kSkipped;
    Int step;
    if constexpr (kBits == 2) {
      step = _mm512_zextsi128_si512(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
    } else if constexpr (kBits == 3) {
      step = _mm512_zextsi128_si512(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    } else {
      step = _mm512_zextsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
    }
    bytes = _mm512_permutexvar_epi8(load_int(kCodeBytes<kBits, kSkipped>.values), step);
  }
  return _mm512_srlv_epi16(bytes, _mm512_load_si512(kCodeShifts<kBits>.values));
}
inline Bf16x2 look_up(Bf16x2 words, Bf16x2 table) {
  return _mm512_permutexvar_epi16(words, table);
}

/// Step s in quarters: quarter l of it is quarter s of v[l]. In each of v lane i is the k8 number
/// i.
inline void quarters_to_steps(const Bf16x2 (&v)[4], Bf16x2 (&steps)[4]) {
  const Bf16x2 low01 = _mm512_shuffle_i32x4(v[0], v[1], 0x44);
  const Bf16x2 low23 = _mm512_shuffle_i32x4(v[2], v[3], 0x44);
  const Bf16x2 high01 = _mm512_shuffle_i32x4(v[0], v[1], 0xEE);
  const Bf16x2 high23 = _mm512_shuffle_i32x4(v[2], v[3], 0xEE);
  steps[0] = _mm512_shuffle_i32x4(low01, low23, 0x88);
  steps[1] = _mm512_shuffle_i32x4(low01, low23, 0xDD);
  steps[2] = _mm512_shuffle_i32x4(high01, high23, 0x88);
  steps[3] = _mm512_shuffle_i32x4(high01, high23, 0xDD);
}
/// The step of the 32 words at p, which lie in the order of their inputs.
inline Bf16x2 load_step(const uint8_t* p) {
  return _mm512_permutexvar_epi16(_mm512_load_si512(kStepInputs.values), _mm512_loadu_si512(p));
}
/// Keeps the first `num_k8` runs of 8 of the step at p; the others become zero.
inline void keep_k8(uint8_t* p, int num_k8) {
  const auto lanes = static_cast<__mmask16>(((1u << num_k8) - 1) * 0x1111u);
  _mm512_storeu_si512(p, _mm512_maskz_loadu_epi32(lanes, p));
}

// Tables of 32 bf16.

/// 16 floats rounded to bf16, twice over.
inline Bf16x2 round_and_repeat(Float v) {
  return _mm512_broadcast_i64x4(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v)));
}
/// 32 floats rounded to bf16, those of `low` first.
inline Bf16x2 round_in_order(Float low, Float high) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}
/// 16 of the bf16 as floats: the first, or the last.
inline Float first_bf16(Bf16x2 v) {
  return float_of_bits(shift_left<16>(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(v))));
}
inline Float last_bf16(Bf16x2 v) {
  return float_of_bits(shift_left<16>(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(v, 1))));
}

/// The 2^kBits words at p, over and over.
template <int kBits>
inline Bf16x2 repeat_bf16(const uint16_t* p) {
  if constexpr (kBits == 4) {
    return _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  } else if constexpr (kBits == 3) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  } else {
    return _mm512_broadcastq_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
}

// Half a vector: 8 floats.

inline void store_half(float* p, __m256 v) {
  _mm256_storeu_ps(p, v);
}
/// p[i] + p[8 + i]
inline __m256 add_halves(const float* p) {
  return _mm256_add_ps(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8));
}
/// a * b + p[i]
inline __m256 fma_half(float a, __m256 b, const float* p) {
  return _mm256_fmadd_ps(_mm256_set1_ps(a), b, _mm256_loadu_ps(p));
}
inline __m256 mul_half(float a, __m256 b) {
  return _mm256_mul_ps(_mm256_set1_ps(a), b);
}
/// The floats p[0], p[kStride], p[2 kStride] and so on.
template <int kStride>
inline Float load_strided(const float* p) {
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return _mm512_i32gather_ps(_mm512_mullo_epi32(lane, _mm512_set1_epi32(kStride)), p, 4);
}

}  // namespace
}  // namespace subbyte::cpu::amx
