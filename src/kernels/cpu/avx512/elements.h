#pragma once
// How codes become floats, AVX-512: Element<format>, see IsElement in generic/concepts.inl.h.
//
// A table of sixteen floats fits one register and vpermps ignores the upper bits of its index, so
// one shift and one permute decode sixteen codes, whatever they mean. Shorter codes repeat the
// table, which makes their neighbours' bits harmless; for five bits there is a permute of two
// registers.

#include "formats/ggml_tables.h"
#include "formats/normal_float_tables.h"
#include "kernels/cpu/avx512/scales.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/generic/constant_table.h"

namespace subbyte::cpu::avx512 {
namespace {

#include "kernels/cpu/generic/codebooks.inl.h"

/// 64 bytes that the compiler must keep in a register: it would rather read them again for each
/// shift, and in most rows that are no multiple of 64 bytes each read is of two cache lines.
inline __m512i load_once(const uint8_t* p) {
  __m512i v = _mm512_loadu_si512(p);
  asm("" : "+v"(v));
  return v;
}

/// Lane i: the two bytes at p + 2 * i.
inline __m512i load_16_bit_lanes(const uint8_t* p) {
  return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

#ifdef __AVX512VBMI__

/// Where the bytes kBytes * i + kOffset + 0 .. 3 of 16 * kBytes lie in two registers, of which the
/// second has the last 64.
template <int kBytes, int kOffset>
constexpr auto kOverlapIndex = make_table<uint8_t, 64>([](int i) {
  const int byte = kBytes * (i / 4) + i % 4 + kOffset;
  return byte < 64 ? byte : byte + 128 - 16 * kBytes;
});

// One permute of bytes does it. The loads are of whole registers and reach past the block, so that
// the mainloops use them only where the row goes on; a masked load is three times as slow from
// memory on Zen 5.
constexpr int64_t kLoadBytes3 = 64;

/// Lane i: the three bytes at p + 3 * i, and one more.
inline __m512i load_24_bit_lanes(const uint8_t* p) {
  const __m512i first = _mm512_set1_epi32(0x03020100);
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i index =
      _mm512_add_epi32(first, _mm512_mullo_epi32(lane, _mm512_set1_epi32(0x03030303)));
  return _mm512_permutexvar_epi8(index, _mm512_loadu_si512(p));
}

/// Lane i: the four bytes at p + kBytes * i + kOffset, of 16 * kBytes. Two registers overlap.
template <int kBytes, int kOffset>
inline __m512i load_run_words(const uint8_t* p) {
  return _mm512_permutex2var_epi8(_mm512_loadu_si512(p),
                                  _mm512_load_si512(kOverlapIndex<kBytes, kOffset>.values),
                                  _mm512_loadu_si512(p + 16 * kBytes - 64));
}

#else

constexpr int64_t kLoadBytes3 = 48;

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

/// Lane i: the four bytes at p + kBytes * i + kOffset, of 16 * kBytes.
template <int kBytes, int kOffset>
inline __m512i load_run_words(const uint8_t* p) {
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i begin = _mm512_mullo_epi32(lane, _mm512_set1_epi32(kBytes));
  return _mm512_i32gather_epi32(begin, p + kOffset, 1);
}

#endif

/// The 2^kBits values, kBits at most 4, over and over: then the bits of the next code, which follow
/// in the same word, may stay in an index.
template <int kBits>
inline Float repeat_values(const float* values) {
  if constexpr (kBits == 2) return _mm512_broadcast_f32x4(_mm_loadu_ps(values));
  if constexpr (kBits == 3) return _mm512_broadcast_f32x8(_mm256_loadu_ps(values));
  return cpu::avx512::load(values);
}

/// Codes of up to four bits: lane i of the register holds its run of 8.
template <Format kElement>
struct TableElement : TableTraits<kElement> {
  static constexpr int kBits = Codebook<kElement>::kBits;
  static constexpr int64_t kLoadBytes = kBits == 3 ? kLoadBytes3 : kBits * kLanes;
  struct Codes {
    __m512i words;
    const float* values;
  };
  static __m512i load_words(const uint8_t* p) {
    if constexpr (kBits == 2) return load_16_bit_lanes(p);
    if constexpr (kBits == 3) return load_24_bit_lanes(p);
    return load_once(p);
  }
  static Codes load(const uint8_t* p, const float* values) { return {load_words(p), values}; }
  template <int j>
  static Float value(const Codes& codes) {
    const Float table = repeat_values<kBits>(codes.values);
    if constexpr (kBits == 2 && j % 2 == 1) {  // four bits are two codes: one shift for both
      const __m512i second = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
      return permute(permute(table, second), _mm512_srli_epi32(codes.words, kBits * (j - 1)));
    }
    return permute(table, _mm512_srli_epi32(codes.words, kBits * j));
  }
};

/// Codes of five bits. A run of 8 has 40, so two words for each lane: the codes 0 to 3 lie in the
/// first 20 bits of `low`, 4 to 7 after the first 12 of `high`. The table takes two registers.
template <>
struct Element<Format::kNFL5> : TableTraits<Format::kNFL5> {
  struct Codes {
    __m512i low;
    __m512i high;
    const float* values;
  };
  static Codes load(const uint8_t* p, const float* values) {
    return {load_run_words<5, 0>(p), load_run_words<5, 1>(p), values};
  }
  template <int j>
  static Float value(const Codes& codes) {
    const __m512i index =
        _mm512_srli_epi32(j < 4 ? codes.low : codes.high, 5 * j - (j < 4 ? 0 : 8));
    return _mm512_permutex2var_ps(cpu::avx512::load(codes.values), index,
                                  cpu::avx512::load(codes.values + 16));
  }
};

template <>
struct Element<Format::kVQ2> : VectorElement<4> {};

#ifdef __AMX_TILE__

/// Bytes of a quarter, 16 indices, that become two numbers of 64 bits: the indices 2 j and 2 j + 1.
/// 0x80 makes zeros.
template <int j>
constexpr auto kTwoIndices = make_table<uint8_t, 16>([](int i) {
  return i == 0 ? 2 * j : i == 8 ? 2 * j + 1 : 0x80;
});

/// Pairs by a gather of eight: 0.6 of the time of loads and shuffles on Emerald Rapids.
template <>
struct Element<Format::kVQ4> : VectorElement<2> {
  struct Codes {
    __m512i indices;
    const float* vectors;
  };
  static Codes load(const uint8_t* p, const float* codebook) {
    return {_mm512_loadu_si512(p), codebook};
  }
  template <int j>
  static Float value(const Codes& codes) {
    const __m128i two = _mm_load_si128(reinterpret_cast<const __m128i*>(kTwoIndices<j>.values));
    const __m512i index = _mm512_shuffle_epi8(codes.indices, _mm512_broadcast_i32x4(two));
    return _mm512_castpd_ps(_mm512_i64gather_pd(index, codes.vectors, 8));
  }
};

#else
template <>
struct Element<Format::kVQ4> : VectorElement<2> {};
#endif

/// Two words for each lane.
struct WordPair {
  Int low;
  Int high;
};
/// The first and the last four bytes of each run of 8.
template <int kCodeBits>
inline WordPair load_long_codes(const uint8_t* p) {
  return {load_run_words<kCodeBits, 0>(p), load_run_words<kCodeBits, kCodeBits - 4>(p)};
}
/// Eight bytes for each lane: the first four in `low`, the others in `high`.
inline WordPair load_eight_bytes(const uint8_t* p) {
  const __m512i a = _mm512_loadu_si512(p);
  const __m512i b = _mm512_loadu_si512(p + 64);
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  return {_mm512_permutex2var_epi32(a, even, b), _mm512_permutex2var_epi32(a, odd, b)};
}

#include "kernels/cpu/generic/byte_elements.inl.h"

/// As in avx2/elements.h.
template <>
struct Element<Format::kE4M3> : ElementTraits<8> {
  using Codes = WordPair;
  static Codes load(const uint8_t* p) { return load_eight_bytes(p); }
  template <int j>
  static Float value(const Codes& codes) {
    const __m512i at_top = _mm512_slli_epi32(j < 4 ? codes.low : codes.high, 24 - 8 * (j % 4));
    const __m512i bits =
        _mm512_and_si512(_mm512_srli_epi32(at_top, 4), _mm512_set1_epi32(0x07F00000));
    const __mmask16 nans = _mm512_cmpeq_epi32_mask(bits, _mm512_set1_epi32(0x07F00000));
    const Float x = _mm512_castsi512_ps(_mm512_add_epi32(bits, _mm512_set1_epi32(120 << 23)));
    const __m512i magnitude =
        _mm512_castps_si512(_mm512_min_ps(x, fma(x, broadcast(2), broadcast(-0x1p-6f))));
    const __m512i sign_bit = _mm512_set1_epi32(static_cast<int>(0x80000000u));
    const __m512i value = _mm512_ternarylogic_epi32(magnitude, at_top, sign_bit, 0xF8);
    return _mm512_castsi512_ps(
        _mm512_mask_mov_epi32(value, nans, _mm512_set1_epi32(0x7FC00000)));  // a | (b & c)
  }
};

}  // namespace
}  // namespace subbyte::cpu::avx512
