#pragma once
// How codes become floats and bytes: as with AVX-512 and VNNI, and Bf16x2Element<format> for the
// codebooks of which bf16 holds every entry.
//   Codes load(p)          the kBits * kLanes bytes at p: one block of a row. Word 2 * i holds the
//                          codes 0 to 3 of k8 i in its low bits, word 2 * i + 1 the others
//   Bf16x2 value<j>(codes)   codes j and 4 + j of each k8
// vpermw looks 32 words up and ignores the upper bits of its index, so one shift and one permute
// decode 32 codes.

#include "kernels/cpu/avx512bf16/vec.h"
#include "kernels/cpu/avx512vnni/elements.h"

namespace subbyte::cpu::avx512bf16 {
namespace {

/// The bf16 that stand for a codebook: value(code) = factor * words[code].
template <Format kElement>
struct Bf16Codebook {
  static constexpr float kFactor = 1;
  static constexpr double value(int code) { return Codebook<kElement>::value(code); }
};

/// Two magnitudes, 1 and 0.27699357: 59 / 213 is larger by 6.4e-6 = 2^-17 only, and both are
/// integers that bf16 holds.
template <>
struct Bf16Codebook<Format::kNFL2> {
  static constexpr float kFactor = 1.0f / 213;
  static constexpr double value(int code) {
    constexpr double kValues[4] = {-213, -59, 59, 213};
    return kValues[code];
  }
};

/// The bits of a bf16 that holds `value`.
constexpr uint16_t bf16_bits(double value) {
  return static_cast<uint16_t>(__builtin_bit_cast(uint32_t, static_cast<float>(value)) >> 16);
}

/// A codebook as bf16, repeated.
using Bf16Table = ConstantTable<uint16_t, 32>;
template <Format kElement>
constexpr Bf16Table kBf16Table = make_table<uint16_t, 32>([](int i) {
  return bf16_bits(Bf16Codebook<kElement>::value(i % (1 << Codebook<kElement>::kBits)));
});

/// Says whether bf16 holds every entry.
template <Format kElement>
constexpr bool has_bf16() {
  if constexpr (!has_codebook<kElement>()) {
    return false;
  } else {
    for (int code = 0; code < (1 << Codebook<kElement>::kBits); ++code) {
      const auto value = static_cast<float>(Bf16Codebook<kElement>::value(code));
      if ((__builtin_bit_cast(uint32_t, value) & 0xFFFFu) != 0) return false;
    }
    return true;
  }
}

/// Says whether bf16 holds the entries without a factor.
template <Format kElement>
constexpr bool exact_bf16() {
  if constexpr (has_bf16<kElement>()) {
    return Bf16Codebook<kElement>::kFactor == 1;
  } else {
    return false;
  }
}

/// Runs of 8 in three bytes: bytes 0, 1 in word 2 * i, and 1, 2 moved by four bits in the next.
inline __m512i load_24_bit_words(const uint8_t* p) {
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i index = _mm512_add_epi32(_mm512_set1_epi32(0x02010100),
                                         _mm512_mullo_epi32(lane, _mm512_set1_epi32(0x03030303)));
  const __m512i words = _mm512_permutexvar_epi8(index, _mm512_loadu_si512(p));
  return _mm512_srlv_epi16(words, _mm512_set1_epi32(4 << 16));
}

template <Format kElement>
struct Bf16x2Element {
  static constexpr int kBits = Codebook<kElement>::kBits;
  static constexpr InputOrder kOrder = InputOrder::kK8;  // in lanes, too
  static constexpr int64_t kLoadBytes = kBits == 3 ? kLoadBytes3 : kBits * kLanes;
  using Codes = __m512i;
  static Codes load(const uint8_t* p) {
    if constexpr (kBits == 2) {
      return _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    }
    if constexpr (kBits == 3) return load_24_bit_words(p);
    return _mm512_loadu_si512(p);
  }
  template <int j>
  static Bf16x2 value(Codes codes) {
    return _mm512_permutexvar_epi16(_mm512_srli_epi16(codes, kBits * j),
                                    _mm512_load_si512(kBf16Table<kElement>.values));
  }
};

}  // namespace
}  // namespace subbyte::cpu::avx512bf16
