#pragma once
// How codes become floats, AVX2: Element<format>, see IsElement in generic/concepts.inl.h.
//
// A table in a register has eight entries here: enough for codes of 2 and 3 bits and for the
// magnitudes of E2M1; larger tables take several and blends. Integers of 4 and 8 bits have the top
// bit of every code flipped, which makes them signed numbers around the centre, and two shifts cut
// one out with its sign.

#include "formats/ggml_tables.h"
#include "formats/normal_float_tables.h"
#include "kernels/cpu/avx2/scales.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/generic/constant_table.h"

namespace subbyte::cpu::avx2 {
namespace {

#include "kernels/cpu/generic/codebooks.inl.h"

inline __m256i load_32_bytes(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

inline __m128i load_16_bytes(const uint8_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}

inline __m256i load_halves(const uint8_t* lower, const uint8_t* upper) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(load_16_bytes(lower)), load_16_bytes(upper),
                                 1);
}
inline __m256i shuffle_halves(__m256i v, __m128i index) {
  return _mm256_shuffle_epi8(v, _mm256_broadcastsi128_si256(index));
}

/// Lane i: the three bytes at p + 3 * i. Two loads overlap so that none passes the 24 bytes.
inline __m256i load_24_bit_lanes(const uint8_t* p) {
  const __m256i bytes = load_halves(p, p + 8);
  const __m256i spread =
      _mm256_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1,  // bytes 0 to 11
                       4, 5, 6, -1, 7, 8, 9, -1, 10, 11, 12, -1, 13, 14, 15, -1);
  return _mm256_shuffle_epi8(bytes, spread);
}

/// Entry (index mod 2^kBits) of a table of as many floats.
template <int kBits>
inline Float look_up(const float* table, __m256i index) {
  if constexpr (kBits == 2) {  // twice over: the bits of the next code may stay in the index
    return permute(_mm256_broadcast_ps(reinterpret_cast<const __m128*>(table)), index);
  } else if constexpr (kBits == 3) {
    return permute(_mm256_loadu_ps(table), index);
  } else {
    // The bit above those that the halves take, as a sign, chooses between them.
    return _mm256_blendv_ps(look_up<kBits - 1>(table, index),
                            look_up<kBits - 1>(table + (1 << (kBits - 1)), index),
                            _mm256_castsi256_ps(_mm256_slli_epi32(index, 32 - kBits)));
  }
}

/// Codes of up to four bits: lane i of the register holds its run of 8.
template <Format kElement>
struct TableElement : TableTraits<kElement> {
  static constexpr int kBits = Codebook<kElement>::kBits;
  struct Codes {
    __m256i words;
    const float* values;
  };
  static Codes load(const uint8_t* p, const float* values) {
    if constexpr (kBits == 2) return {_mm256_cvtepu16_epi32(load_16_bytes(p)), values};
    if constexpr (kBits == 3) return {load_24_bit_lanes(p), values};
    return {load_32_bytes(p), values};
  }
  template <int j>
  static Float value(const Codes& codes) {
    return look_up<kBits>(codes.values, _mm256_srli_epi32(codes.words, kBits * j));
  }
};

/// Codes of five bits. A run of 8 has 40, so two words of three bytes for each lane: the codes 0 to
/// 3 lie in the first 20 bits of `low`, 4 to 7 after the first 4 of `high`.
template <>
struct Element<Format::kNFL5> : TableTraits<Format::kNFL5> {
  struct Codes {
    __m256i low;
    __m256i high;
    const float* values;
  };
  /// Four runs of 8 are 20 bytes: 16 from the first one on, and 16 from the fifth.
  static Codes load(const uint8_t* p, const float* values) {
    const __m256i first = load_halves(p, p + 20);
    const __m256i fifth = load_halves(p + 4, p + 24);
    const __m128i low_first = _mm_setr_epi8(0, 1, 2, -1, 5, 6, 7, -1, 10, 11, 12, -1,  //
                                            -1, -1, -1, -1);
    const __m128i low_fifth = _mm_setr_epi8(-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,  //
                                            11, 12, 13, -1);
    const __m128i high_first = _mm_setr_epi8(2, 3, 4, -1, -1, -1, -1, -1, -1, -1, -1, -1,  //
                                             -1, -1, -1, -1);
    const __m128i high_fifth = _mm_setr_epi8(-1, -1, -1, -1, 3, 4, 5, -1, 8, 9, 10, -1,  //
                                             13, 14, 15, -1);
    return {_mm256_or_si256(shuffle_halves(first, low_first), shuffle_halves(fifth, low_fifth)),
            _mm256_or_si256(shuffle_halves(first, high_first), shuffle_halves(fifth, high_fifth)),
            values};
  }
  template <int j>
  static Float value(const Codes& codes) {
    const __m256i index =
        _mm256_srli_epi32(j < 4 ? codes.low : codes.high, 5 * j - (j < 4 ? 0 : 16));
    return look_up<5>(codes.values, index);
  }
};

template <>
struct Element<Format::kU4> : ElementTraits<4, 8> {
  using Codes = __m256i;
  static Codes load(const uint8_t* p) { return load_32_bytes(p); }
  template <int j>
  static Float value(Codes codes) {
    const __m256i flipped =
        _mm256_xor_si256(codes, _mm256_set1_epi32(static_cast<int>(0x88888888u)));
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(flipped, 28 - 4 * j), 28));
  }
};

template <>
struct Element<Format::kE2M1> : ElementTraits<4> {
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

template <Format kElement>
struct K8Bytes {
  static constexpr bool kExists = false;
};

template <>
struct K8Bytes<Format::kU4> : ByteTraits<4, 3> {
  using Codes = ByteCodes;
  static Codes load(const uint8_t* p) { return unpack(load_32_bytes(p)); }
  /// Lanes are runs of 8 of any kind.
  static Codes unpack(__m256i codes) {
    return {and_bits(codes, 0x0F0F0F0Fu), and_bits(shift_right<4>(codes), 0x0F0F0F0Fu)};
  }
};

/// The codes of E2M1 as unsigned bytes: twice what they stand for, and 16.
constexpr auto kE2m1Unsigned =
    make_table<uint8_t, 16>([](int i) { return 2 * Codebook<Format::kE2M1>::value(i) + 16; });

/// Those of IQ4, and 128.
constexpr auto kIq4Unsigned =
    make_table<uint8_t, 16>([](int i) { return Codebook<Format::kIQ4>::value(i) + 128; });

/// Codes of four bits, by a table of bytes.
template <const auto& kTable, int kShift>
struct TableK8Bytes : ByteTraits<4, kShift> {
  using Codes = ByteCodes;
  static Codes load(const uint8_t* p) { return unpack(load_32_bytes(p)); }
  static Codes unpack(__m256i codes) {
    const Codes bytes = K8Bytes<Format::kU4>::unpack(codes);
    return {lookup_bytes(kTable.values, bytes.even), lookup_bytes(kTable.values, bytes.odd)};
  }
};
template <>
struct K8Bytes<Format::kE2M1> : TableK8Bytes<kE2m1Unsigned, 4> {
  static constexpr float kFactor = 0.5f;
};
template <>
struct K8Bytes<Format::kIQ4> : TableK8Bytes<kIq4Unsigned, 7> {};

/// Where the four bytes from kFirst on of each of four runs of 8 lie in the first 16 bytes of them,
/// or those that do not lie there in the last 16; 0x80 elsewhere, which shuffles to 0.
template <int kCodeBits, int kFirst, bool kInLast>
constexpr auto kRunBytes = make_table<uint8_t, 16>([](int i) {
  const int byte = kCodeBits * (i / 4) + kFirst + i % 4;
  if ((byte < 16) == kInLast) return 0x80;
  return kInLast ? byte - (4 * kCodeBits - 16) : byte;
});

/// Two words for each lane.
struct WordPair {
  Int low;
  Int high;
};

/// Bytes kFirst to kFirst + 3 of each run of codes of kCodeBits.
template <int kCodeBits, int kFirst>
inline __m256i run_words(__m256i first, __m256i last) {
  return _mm256_or_si256(
      shuffle_halves(first, load_16_bytes(kRunBytes<kCodeBits, kFirst, false>.values)),
      shuffle_halves(last, load_16_bytes(kRunBytes<kCodeBits, kFirst, true>.values)));
}
/// The first and the last four bytes of each run of 8. Four runs pass 16 bytes: theirs are in the
/// first 16 or in the last.
template <int kCodeBits>
inline WordPair load_long_codes(const uint8_t* p) {
  constexpr int kHalf = 4 * kCodeBits;
  const __m256i first = load_halves(p, p + kHalf);
  const __m256i last = load_halves(p + kHalf - 16, p + 2 * kHalf - 16);
  return {run_words<kCodeBits, 0>(first, last), run_words<kCodeBits, kCodeBits - 4>(first, last)};
}

/// Codes of five and six bits: each in two bytes of its own, but not at their lower end, so that
/// the upper half of a product with a power of two is the code. (Shifts wait for shuffles on
/// Zen 4.)
template <int kCodeBits>
struct LongK8Bytes : ByteTraits<kCodeBits, kCodeBits - 1> {
  using Codes = ByteCodes;
  static Codes load(const uint8_t* p) {
    constexpr int kTwo = 2 * kCodeBits;                              // bytes of two runs
    const __m256i outer = load_halves(p, p + 2 * kTwo);              // runs 0, 1 | 4, 5
    const __m256i inner = load_halves(p + kTwo, p + 4 * kTwo - 16);  // runs 2, 3 | 6, 7
    return {codes_of<0>(outer, inner), codes_of<1>(outer, inner)};
  }

 private:
  /// Where code h + 2 * i, i < 4, begins in a run; and in its two bytes, from 1 to 8.
  static constexpr int run_bit(int i, int h) { return kCodeBits * (h + 2 * (i % 4)); }
  static constexpr int word_bit(int i, int h) { return (run_bit(i, h) + 7) % 8 + 1; }
  /// Where the bytes of these codes lie in 32 of runs of two halves, the upper two of which begin
  /// kUpper bytes late; 0x80, which shuffles to 0, for a byte that is not of the run.
  template <int h, int kUpper>
  static constexpr auto kBytes = make_table<uint8_t, 32>([](int i) {
    const int in_run = (run_bit(i / 2, h) - word_bit(i / 2, h)) / 8 + i % 2;
    const bool before = run_bit(i / 2, h) < word_bit(i / 2, h) && i % 2 == 0;
    if (before || in_run >= kCodeBits) return 0x80;
    return (i >= 16 ? kUpper : 0) + kCodeBits * (i / 8 % 2) + in_run;
  });
  template <int h>
  static constexpr auto kMasks = make_table<uint16_t, 16>([](int i) {
    return ((1 << kCodeBits) - 1) << word_bit(i, h);
  });
  template <int h>
  static constexpr auto kFactors = make_table<uint16_t, 16>([](int i) {
    return 1 << (16 - word_bit(i, h));
  });
  static __m256i load_words(const uint16_t* p) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
  }
  template <int h, int kUpper>
  static __m256i words_of(__m256i runs) {
    const __m256i bytes = load_32_bytes(kBytes<h, kUpper>.values);
    const __m256i codes =
        _mm256_and_si256(_mm256_shuffle_epi8(runs, bytes), load_words(kMasks<h>.values));
    return _mm256_mulhi_epu16(codes, load_words(kFactors<h>.values));
  }
  template <int h>
  static Int codes_of(__m256i outer, __m256i inner) {
    return _mm256_packus_epi16(words_of<h, 0>(outer), words_of<h, 16 - 2 * kCodeBits>(inner));
  }
};
template <>
struct K8Bytes<Format::kU5> : LongK8Bytes<5> {};
template <>
struct K8Bytes<Format::kU6> : LongK8Bytes<6> {};

/// Indices of vectors that come out of words in registers, as each byte that is loaded takes the
/// place of a load of a vector: 0.91 of the time with four numbers on Zen 4, 0.97 with two.
template <int kSize>
struct VectorsByWords : VectorElement<kSize> {
  static constexpr int kWords = kLanes / kSize;
  struct Codes {
    uint64_t words[kWords];
    const float* vectors;

    /// The vector of index i of the block.
    [[gnu::always_inline]] const float* vector(int i) const {
      constexpr int kBytesLog2 = kSize == 4 ? 4 : 3;
      const int shift = 8 * (i % 8) - kBytesLog2;
      const uint64_t offset = (shift < 0 ? words[i / 8] << -shift : words[i / 8] >> shift) &
                              (uint64_t{0xFF} << kBytesLog2);
      return reinterpret_cast<const float*>(reinterpret_cast<const uint8_t*>(vectors) + offset);
    }
  };
  [[gnu::always_inline]] static Codes load(const uint8_t* p, const float* codebook) {
    Codes codes;
    codes.vectors = codebook;
    for (int i = 0; i < kWords; ++i) {
      __builtin_memcpy(&codes.words[i], p + 8 * i, 8);
      asm("" : "+r"(codes.words[i]));  // else the compiler loads each byte again
    }
    return codes;
  }
  template <int j>
  [[gnu::always_inline]] static Float value(const Codes& codes) {
    constexpr int kIndices = 4 / kSize;  // of four lanes
    const float* vectors[kIndices * kLanes / 4];
#pragma GCC unroll 8
    for (int i = 0; i < kIndices * kLanes / 4; ++i) {
      vectors[i] = codes.vector(i / kIndices * (32 / kSize) + kIndices * j + i % kIndices);
    }
    return load_parts(vectors);
  }
};

template <>
struct Element<Format::kVQ2> : VectorsByWords<4> {};
template <>
struct Element<Format::kVQ4> : VectorsByWords<2> {};

/// Eight bytes for each lane: the first four in `low`, the others in `high`.
inline WordPair load_eight_bytes(const uint8_t* p) {
  const Float a = _mm256_castsi256_ps(load_32_bytes(p));
  const Float b = _mm256_castsi256_ps(load_32_bytes(p + 32));
  // Even and odd words, but of a and b in turn for each half; the permute puts them in order.
  const __m256i even = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88));
  const __m256i odd = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xDD));
  return {_mm256_permute4x64_epi64(even, 0xD8), _mm256_permute4x64_epi64(odd, 0xD8)};
}

#include "kernels/cpu/generic/byte_elements.inl.h"

template <>
struct K8Bytes<Format::kU8> : ByteTraits<8, 7> {
  using Codes = ByteCodes;
  static Codes load(const uint8_t* p) {
    // Four even bytes of a run, then four odd ones.
    const __m128i parts = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
    const Float a = _mm256_castsi256_ps(shuffle_halves(load_32_bytes(p), parts));
    const Float b = _mm256_castsi256_ps(shuffle_halves(load_32_bytes(p + 32), parts));
    return {in_order(_mm256_shuffle_ps(a, b, 0x88)), in_order(_mm256_shuffle_ps(a, b, 0xDD))};
  }

 private:
  /// Words of two vectors in turn for each half, in the order of the runs.
  static Int in_order(Float v) { return _mm256_permute4x64_epi64(_mm256_castps_si256(v), 0xD8); }
};

/// The bits of a code become the upper ones of a float, whose exponents differ by 120. A code
/// without a leading 1 then reads as 2^-7 (1 + m / 8) and not as 2^-6 m / 8: min(x, 2 x - 2^-6) is
/// right for both, and needs no float that is subnormal.
template <>
struct Element<Format::kE4M3> : ElementTraits<8> {
  using Codes = WordPair;
  static Codes load(const uint8_t* p) { return load_eight_bytes(p); }
  template <int j>
  static Float value(const Codes& codes) {
    const __m256i at_top = _mm256_slli_epi32(j < 4 ? codes.low : codes.high, 24 - 8 * (j % 4));
    const __m256i bits =
        _mm256_and_si256(_mm256_srli_epi32(at_top, 4), _mm256_set1_epi32(0x07F00000));
    const __m256i nans = _mm256_cmpeq_epi32(bits, _mm256_set1_epi32(0x07F00000));
    const Float x = _mm256_castsi256_ps(_mm256_add_epi32(bits, _mm256_set1_epi32(120 << 23)));
    const Float magnitude = _mm256_min_ps(x, fma(x, broadcast(2), broadcast(-0x1p-6f)));
    const Float sign = _mm256_and_ps(_mm256_castsi256_ps(at_top), broadcast(-0.0f));
    return _mm256_or_ps(_mm256_or_ps(magnitude, sign), _mm256_castsi256_ps(nans));
  }
};

}  // namespace
}  // namespace subbyte::cpu::avx2
