#pragma once
// How codes become floats, AVX-512. Element<format>:
//   kBits, kCenter           value() gives element - kCenter; the centre is what zero points of
//                            integers lie near, and subtracting it early keeps sums small
//   kOrder                   of the activations that meet value<0>, value<1>, ... value<7>
//   Codes load(p)            the kBits * kLanes bytes at p: one block of a row
//   Float value<j>(codes)    kOctets: number 8 * i + j in lane i; kNatural: kLanes * j + i
//
// A table of sixteen floats fits one register and vpermps ignores the upper bits of its index, so
// one shift and one permute decode sixteen codes, whatever they mean. Shorter codes repeat the
// table, which makes their neighbours' bits harmless.

#include "kernels/cpu/avx512/scales.h"
#include "kernels/cpu/cpu_kernels.h"

namespace subbyte::cpu::avx512 {
namespace {

template <Format kElement>
struct Element;

/// Lane i: the two bytes at p + 2 * i.
inline __m512i load_16_bit_lanes(const uint8_t* p) {
  return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

/// Lane i: the three bytes at p + 3 * i. First each quarter of the register gets its twelve bytes.
/// (One masked load of 48 bytes would do, but runs three times slower from memory on Zen 5.)
inline __m512i load_24_bit_lanes(const uint8_t* p) {
  const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  const __m128i high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 32));
  const __m512i bytes = _mm512_inserti32x4(_mm512_castsi256_si512(low), high, 2);
  const __m512i quarters = _mm512_permutexvar_epi32(
      _mm512_setr_epi32(0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 8, 9, 10, 11, 11), bytes);
  const __m512i spread =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1));
  return _mm512_shuffle_epi8(quarters, spread);
}

inline Float centred_integers(int center) {
  const __m512i i = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i index = _mm512_and_si512(i, _mm512_set1_epi32(2 * center - 1));
  return _mm512_cvtepi32_ps(_mm512_sub_epi32(index, _mm512_set1_epi32(center)));
}

template <>
struct Element<Format::kU2> {
  static constexpr int kBits = 2;
  static constexpr int kCenter = 2;
  static constexpr ActivationOrder kOrder = ActivationOrder::kOctets;
  using Codes = __m512i;
  static Codes load(const uint8_t* p) { return load_16_bit_lanes(p); }
  template <int j>
  static Float value(Codes codes) {
    return permute(centred_integers(kCenter), _mm512_srli_epi32(codes, kBits * j));
  }
};

template <>
struct Element<Format::kU3> {
  static constexpr int kBits = 3;
  static constexpr int kCenter = 4;
  static constexpr ActivationOrder kOrder = ActivationOrder::kOctets;
  using Codes = __m512i;
  static Codes load(const uint8_t* p) { return load_24_bit_lanes(p); }
  template <int j>
  static Float value(Codes codes) {
    return permute(centred_integers(kCenter), _mm512_srli_epi32(codes, kBits * j));
  }
};

template <>
struct Element<Format::kU4> {
  static constexpr int kBits = 4;
  static constexpr int kCenter = 8;
  static constexpr ActivationOrder kOrder = ActivationOrder::kOctets;
  using Codes = __m512i;
  static Codes load(const uint8_t* p) { return _mm512_loadu_si512(p); }
  template <int j>
  static Float value(Codes codes) {
    return permute(centred_integers(kCenter), _mm512_srli_epi32(codes, kBits * j));
  }
};

template <>
struct Element<Format::kE2M1> {
  static constexpr int kBits = 4;
  static constexpr int kCenter = 0;
  static constexpr ActivationOrder kOrder = ActivationOrder::kOctets;
  using Codes = __m512i;
  static Codes load(const uint8_t* p) { return _mm512_loadu_si512(p); }
  template <int j>
  static Float value(Codes codes) {
    const Float table = _mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6,  //
                                       -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6);
    return permute(table, _mm512_srli_epi32(codes, kBits * j));
  }
};

/// Eight bytes for each lane: the first four in `low`, the others in `high`.
template <>
struct Element<Format::kU8> {
  static constexpr int kBits = 8;
  static constexpr int kCenter = 128;
  static constexpr ActivationOrder kOrder = ActivationOrder::kOctets;
  struct Codes {
    __m512i low;
    __m512i high;
  };
  static Codes load(const uint8_t* p) {
    const __m512i a = _mm512_loadu_si512(p);
    const __m512i b = _mm512_loadu_si512(p + 64);
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    // Flipping the top bit turns 0..255 into the signed byte code - 128.
    const __m512i flip = _mm512_set1_epi32(static_cast<int>(0x80808080u));
    return {_mm512_xor_si512(_mm512_permutex2var_epi32(a, even, b), flip),
            _mm512_xor_si512(_mm512_permutex2var_epi32(a, odd, b), flip)};
  }
  template <int j>
  static Float value(const Codes& codes) {
    const __m512i word = j < 4 ? codes.low : codes.high;
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(word, 24 - 8 * (j % 4)), 24));
  }
};

template <>
struct Element<Format::kBF16> {
  static constexpr int kBits = 16;
  static constexpr int kCenter = 0;
  static constexpr ActivationOrder kOrder = ActivationOrder::kNatural;
  using Codes = const uint8_t*;
  static Codes load(const uint8_t* p) { return p; }
  template <int j>
  static Float value(Codes codes) {
    return bf16_to_float(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + 2 * kLanes * j)));
  }
};

template <>
struct Element<Format::kF16> {
  static constexpr int kBits = 16;
  static constexpr int kCenter = 0;
  static constexpr ActivationOrder kOrder = ActivationOrder::kNatural;
  using Codes = const uint8_t*;
  static Codes load(const uint8_t* p) { return p; }
  template <int j>
  static Float value(Codes codes) {
    return _mm512_cvtph_ps(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + 2 * kLanes * j)));
  }
};

template <>
struct Element<Format::kF32> {
  static constexpr int kBits = 32;
  static constexpr int kCenter = 0;
  static constexpr ActivationOrder kOrder = ActivationOrder::kNatural;
  using Codes = const uint8_t*;
  static Codes load(const uint8_t* p) { return p; }
  template <int j>
  static Float value(Codes codes) {
    return _mm512_loadu_ps(codes + 4 * kLanes * j);
  }
};

}  // namespace
}  // namespace subbyte::cpu::avx512
