#pragma once
// How codes become floats: as with AVX-512, and bytes.

#include "kernels/cpu/avx512/elements.h"
#include "kernels/cpu/avx512vnni/vec.h"

namespace subbyte::cpu::avx512vnni {
namespace {

/// Codes in bytes.
struct ByteCodes {
  __m512i even;
  __m512i odd;
};
constexpr int kLimbRowsAtOnce = 4;  // rows of weights that meet a limb together

/// sums[r] += the products of eight bytes a lane, codes unsigned and x signed.
template <int kRows>
[[gnu::always_inline]] inline void add_k8_products(const ByteCodes (&codes)[kRows], Int even,
                                                   Int odd, Int (&sums)[kRows]) {
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) sums[r] = _mm512_dpbusd_epi32(sums[r], codes[r].even, even);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) sums[r] = _mm512_dpbusd_epi32(sums[r], codes[r].odd, odd);
}

template <Format kElement>
struct K8Bytes {
  static constexpr bool kExists = false;
};

template <>
struct K8Bytes<Format::kU4> : ByteTraits<4, 3> {
  using Codes = ByteCodes;
  static Codes load(const uint8_t* p) { return unpack(load_once(p)); }
  /// Lanes are runs of 8 of any kind.
  static Codes unpack(__m512i codes) {
    return {and_bits(codes, 0x0F0F0F0Fu), and_bits(shift_right<4>(codes), 0x0F0F0F0Fu)};
  }
};

/// Table in which vpermb looks up, which ignores two bits of an index of eight: codes of four bits,
/// which may bring their neighbours.
template <Format kElement>
constexpr auto kByteTable = make_table<uint8_t, 64>([](int i) {
  const double value = Codebook<kElement>::value(i % 16);
  return kElement == Format::kE2M1 ? 2 * value + 16 : value + 128;
});

template <Format kElement, int kShift>
struct TableK8Bytes : ByteTraits<4, kShift> {
  using Codes = ByteCodes;
  static Codes load(const uint8_t* p) { return unpack(load_once(p)); }
  static Codes unpack(__m512i codes) {
    const __m512i table = _mm512_load_si512(kByteTable<kElement>.values);
    return {_mm512_permutexvar_epi8(codes, table),
            _mm512_permutexvar_epi8(shift_right<4>(codes), table)};
  }
};
template <>
struct K8Bytes<Format::kE2M1> : TableK8Bytes<Format::kE2M1, 4> {
  static constexpr float kFactor = 0.5f;
};
template <>
struct K8Bytes<Format::kIQ4> : TableK8Bytes<Format::kIQ4, 7> {};

/// The second of two codes.
template <int kBits>
constexpr auto kSecondCodes = make_table<uint8_t, 64>([](int i) {
  return (i >> kBits) % (1 << kBits);
});

/// Codes of two and three bits: an instruction of VBMI takes any eight bits out of 64 for a byte.
/// These are two codes, and their neighbours.
template <Format kElement, int kCodeBits = Codebook<kElement>::kBits>
struct ShortK8Bytes : ByteTraits<kCodeBits, kCodeBits - 1> {
  static constexpr int64_t kLoadBytes = TableElement<kElement>::kLoadBytes;
  using Codes = ByteCodes;
  static Codes load(const uint8_t* p) {
    constexpr int64_t kLane = 2 * kCodeBits * 0x03020100;  // where two codes begin in 64 bits
    const __m512i begins = _mm512_set1_epi64(kLane | ((kLane + 0x20202020) << 32));
    const __m512i two_codes =
        _mm512_multishift_epi64_epi8(begins, TableElement<kElement>::load_words(p));
    return {and_bits(two_codes, ((1u << kCodeBits) - 1) * 0x01010101u),
            _mm512_permutexvar_epi8(two_codes, _mm512_load_si512(kSecondCodes<kCodeBits>.values))};
  }
};
template <>
struct K8Bytes<Format::kU2> : ShortK8Bytes<Format::kU2> {};
template <>
struct K8Bytes<Format::kU3> : ShortK8Bytes<Format::kU3> {};

/// Codes of five to seven bits: the bytes of each run of 8 in a word of 64 bits, of which VBMI
/// takes the codes with even numbers, then the others.
template <int kCodeBits>
struct LongK8Bytes : ByteTraits<kCodeBits, kCodeBits - 1> {
  using Codes = ByteCodes;
  static Codes load(const uint8_t* p) {
    const __m512i lower = codes_of<0>(_mm512_loadu_si512(p));
    const __m512i upper = codes_of<64 - 8 * kCodeBits>(_mm512_loadu_si512(p + 16 * kCodeBits - 64));
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    return {_mm512_permutex2var_epi32(lower, even, upper),
            _mm512_permutex2var_epi32(lower, odd, upper)};
  }

 private:
  /// Where the bytes of eight runs are, the first of which begins at byte kBegin.
  template <int kBegin>
  static constexpr auto kRuns = make_table<uint8_t, 64>([](int i) {
    return (kCodeBits * (i / 8) + i % 8 + kBegin) % 64;
  });
  /// The bits at which the codes 0, 2, 4, 6, 1, 3, 5, 7 of a run begin.
  static constexpr auto kBegins = make_table<uint8_t, 64>(
      [](int i) { return kCodeBits * (i % 8 < 4 ? 2 * (i % 8) : 2 * (i % 8) - 7); });
  template <int kBegin>
  static __m512i codes_of(__m512i bytes) {
    const __m512i runs = _mm512_permutexvar_epi8(_mm512_load_si512(kRuns<kBegin>.values), bytes);
    return and_bits(_mm512_multishift_epi64_epi8(_mm512_load_si512(kBegins.values), runs),
                    ((1u << kCodeBits) - 1) * 0x01010101u);
  }
};
template <>
struct K8Bytes<Format::kU5> : LongK8Bytes<5> {};
template <>
struct K8Bytes<Format::kU6> : LongK8Bytes<6> {};
template <>
struct K8Bytes<Format::kU7> : LongK8Bytes<7> {};

template <>
struct K8Bytes<Format::kU8> : ByteTraits<8, 7> {
  using Codes = ByteCodes;
  static Codes load(const uint8_t* p) {
    const __m512i lower = load_once(p);
    const __m512i upper = load_once(p + 64);
    return {every_second<0>(lower, upper), every_second<1>(lower, upper)};
  }

 private:
  /// The bytes 2 * i + h of 128. An index counts modulo 64, so that one serves both halves.
  template <int h>
  static __m512i every_second(__m512i lower, __m512i upper) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i index = _mm512_add_epi32(_mm512_set1_epi32(0x06040200 + h * 0x01010101),
                                           _mm512_mullo_epi32(lane, _mm512_set1_epi32(0x08080808)));
    return _mm512_mask_permutexvar_epi8(_mm512_permutexvar_epi8(index, lower), 0xFFFFFFFF00000000u,
                                        index, upper);
  }
};

}  // namespace
}  // namespace subbyte::cpu::avx512vnni
