#pragma once
// How codes become floats, AVX2. Element<format>:
//   kBits, kCenter           value() gives element - kCenter; the centre is what zero points of
//                            integers lie near, and subtracting it early keeps sums small
//   kOrder                   of the activations that meet value<0>, value<1>, ... value<7>
//   Codes load(p)            the kBits * kLanes bytes at p: one block of a row
//   Float value<j>(codes)    kOctets: number 8 * i + j in lane i; kNatural: kLanes * j + i
//
// A table in a register has eight entries here: enough for codes of 2 and 3 bits and for the
// magnitudes of E2M1. Wider integers have the top bit of every code flipped, which makes them
// signed numbers around the centre, and two shifts cut one out with its sign.

#include "kernels/cpu/avx2/scales.h"
#include "kernels/cpu/cpu_kernels.h"

namespace subbyte::cpu::avx2 {
namespace {

inline __m256i load_32_bytes(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

inline __m128i load_16_bytes(const uint8_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}

template <Format kElement>
struct Element;

template <>
struct Element<Format::kU2> {
  static constexpr int kBits = 2;
  static constexpr int kCenter = 2;
  static constexpr ActivationOrder kOrder = ActivationOrder::kOctets;
  using Codes = __m256i;
  static Codes load(const uint8_t* p) { return _mm256_cvtepu16_epi32(load_16_bytes(p)); }
  template <int j>
  static Float value(Codes codes) {
    // Twice the four values: the upper of the three index bits belongs to the next code.
    const Float table = _mm256_setr_ps(-2, -1, 0, 1, -2, -1, 0, 1);
    return permute(table, _mm256_srli_epi32(codes, kBits * j));
  }
};

template <>
struct Element<Format::kU3> {
  static constexpr int kBits = 3;
  static constexpr int kCenter = 4;
  static constexpr ActivationOrder kOrder = ActivationOrder::kOctets;
  using Codes = __m256i;
  /// Lane i: the three bytes at p + 3 * i. Two loads overlap so that none passes the 24 bytes.
  static Codes load(const uint8_t* p) {
    const __m256i bytes =
        _mm256_inserti128_si256(_mm256_castsi128_si256(load_16_bytes(p)), load_16_bytes(p + 8), 1);
    const __m256i spread =
        _mm256_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1,  // bytes 0 to 11
                         4, 5, 6, -1, 7, 8, 9, -1, 10, 11, 12, -1, 13, 14, 15, -1);
    return _mm256_shuffle_epi8(bytes, spread);
  }
  template <int j>
  static Float value(Codes codes) {
    const Float table = _mm256_setr_ps(-4, -3, -2, -1, 0, 1, 2, 3);
    return permute(table, _mm256_srli_epi32(codes, kBits * j));
  }
};

template <>
struct Element<Format::kU4> {
  static constexpr int kBits = 4;
  static constexpr int kCenter = 8;
  static constexpr ActivationOrder kOrder = ActivationOrder::kOctets;
  using Codes = __m256i;
  static Codes load(const uint8_t* p) {
    return _mm256_xor_si256(load_32_bytes(p), _mm256_set1_epi32(static_cast<int>(0x88888888u)));
  }
  template <int j>
  static Float value(Codes codes) {
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(codes, 28 - 4 * j), 28));
  }
};

template <>
struct Element<Format::kE2M1> {
  static constexpr int kBits = 4;
  static constexpr int kCenter = 0;
  static constexpr ActivationOrder kOrder = ActivationOrder::kOctets;
  using Codes = __m256i;
  static Codes load(const uint8_t* p) { return load_32_bytes(p); }
  template <int j>
  static Float value(Codes codes) {
    const Float magnitudes = _mm256_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6);
    const Float sign_bit = broadcast(-0.0f);
    const Float signs = _mm256_castsi256_ps(_mm256_slli_epi32(codes, 28 - 4 * j));
    return _mm256_xor_ps(permute(magnitudes, _mm256_srli_epi32(codes, 4 * j)),
                         _mm256_and_ps(signs, sign_bit));
  }
};

/// Eight bytes for each lane: the first four in `low`, the others in `high`.
template <>
struct Element<Format::kU8> {
  static constexpr int kBits = 8;
  static constexpr int kCenter = 128;
  static constexpr ActivationOrder kOrder = ActivationOrder::kOctets;
  struct Codes {
    __m256i low;
    __m256i high;
  };
  static Codes load(const uint8_t* p) {
    const Float a = _mm256_castsi256_ps(load_32_bytes(p));
    const Float b = _mm256_castsi256_ps(load_32_bytes(p + 32));
    // Even and odd words, but of a and b in turn for each half; the permute puts them in order.
    const __m256i even = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88));
    const __m256i odd = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xDD));
    const __m256i flip = _mm256_set1_epi32(static_cast<int>(0x80808080u));
    return {_mm256_xor_si256(_mm256_permute4x64_epi64(even, 0xD8), flip),
            _mm256_xor_si256(_mm256_permute4x64_epi64(odd, 0xD8), flip)};
  }
  template <int j>
  static Float value(const Codes& codes) {
    const __m256i word = j < 4 ? codes.low : codes.high;
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(word, 24 - 8 * (j % 4)), 24));
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
    return bf16_to_float(load_16_bytes(codes + 2 * kLanes * j));
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
    return _mm256_cvtph_ps(load_16_bytes(codes + 2 * kLanes * j));
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
    return _mm256_castsi256_ps(load_32_bytes(codes + 4 * kLanes * j));
  }
};

}  // namespace
}  // namespace subbyte::cpu::avx2
