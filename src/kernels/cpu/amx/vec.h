#pragma once
// What AMX adds to the vocabulary of avx512bf16/vec.h: tiles, and how codes become their rows.

#include "kernels/cpu/amx/tiles.h"

namespace subbyte::cpu::amx {
namespace {

// Machines with AMX fill the first level as fast as the second: 3 to 5 % of M = 1.
constexpr int kPrefetchLevel = 1;
constexpr int64_t kGemvPrefetchBytes = 2048;

// Codes of 2 to 5 bits as the words of tiles, in the order of kFollowingTiles: word 8 l + 4 h + w
// of a step is code 16 h + 4 l + w of its 32.

struct StepBytes {
  alignas(64) uint8_t bytes[64];
};
/// Where the words' codes begin in 64 bits: of two bits in those of all 32 codes, of three and four
/// in those of half h, of five in those from the byte on where code 16 h + 4 l begins.
template <int kBits>
constexpr StepBytes make_code_begins() {
  StepBytes begins{};
  for (int word = 0; word < 32; ++word) {
    const int l = word / 8;
    const int w = word % 4;
    const int code = kBits == 2 ? word / 4 % 2 * 16 + 4 * l + w : 4 * l + w;
    begins.bytes[2 * word] =
        static_cast<uint8_t>(kBits == 5 ? kBits * 4 * l % 8 + kBits * w : kBits * code);
  }
  return begins;
}
template <int kBits>
constexpr StepBytes kCodeBegins = make_code_begins<kBits>();

/// Which of the bytes from `skipped` before a step on go where for three and five bits; 0x80: none.
template <int kBits>
constexpr StepBytes make_code_bytes(int skipped) {
  StepBytes indices{};
  for (int byte = 0; byte < 64; ++byte) {
    const int l = byte / 16;
    const int h = byte / 8 % 2;
    const int first = kBits == 5 ? 10 * h + kBits * 4 * l / 8 : 6 * h;
    const int index = skipped + first + byte % 8;
    indices.bytes[byte] = static_cast<uint8_t>(index < (kBits == 5 ? 32 : 16) ? index : 0x80);
  }
  return indices;
}
template <int kBits, int kSkipped>
constexpr StepBytes kCodeBytes = make_code_bytes<kBits>(kSkipped);

/// The codes of one step of a block in the low bits of words. What else is in the words does not
/// count for look_up(), as tables are repeated. Nothing behind the block is read.
template <int kBits, int kStep>
[[gnu::always_inline]] inline Pairs code_words(const uint8_t* block) {
  const uint8_t* p = block + 4 * kBits * kStep;
  Int bytes;
  if constexpr (kBits == 2) {
    int64_t all;
    __builtin_memcpy(&all, p, 8);
    bytes = _mm512_set1_epi64(all);
  } else if constexpr (kBits == 5) {
    constexpr int kSkipped = kStep == 3 ? 12 : 0;
    const auto* from = reinterpret_cast<const __m256i*>(p - kSkipped);
    bytes = _mm512_permutexvar_epi8(load_int(kCodeBytes<kBits, kSkipped>.bytes),
                                    _mm512_zextsi256_si512(_mm256_loadu_si256(from)));
  } else {
    constexpr int kSkipped = kBits == 3 && kStep == 3 ? 4 : 0;
    const auto* from = reinterpret_cast<const __m128i*>(p - kSkipped);
    bytes = _mm512_broadcast_i32x4(_mm_loadu_si128(from));
    if constexpr (kBits == 3) {
      bytes = _mm512_shuffle_epi8(bytes, load_int(kCodeBytes<kBits, kSkipped>.bytes));
    }
  }
  return _mm512_multishift_epi64_epi8(load_int(kCodeBegins<kBits>.bytes), bytes);
}
inline Pairs look_up(Pairs words, Pairs table) {
  return _mm512_permutexvar_epi16(words, table);
}
/// Codes of four bits times two, plus h, in the bits 0 to 4.
inline Pairs paired_code_words(const uint8_t* p) {
  const __m512i begins = _mm512_set_epi64(
      0x003B00370033002F, 0x003B00370033002F, 0x002B00270023001F, 0x002B00270023001F,
      0x001B00170013000F, 0x001B00170013000F, 0x000B00070003003F, 0x000B00070003003F);
  const __m512i codes =
      _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m512i halves = _mm512_set_epi64(0x0001000100010001, 0, 0x0001000100010001, 0,
                                          0x0001000100010001, 0, 0x0001000100010001, 0);
  return _mm512_ternarylogic_epi32(_mm512_multishift_epi64_epi8(begins, codes), halves,
                                   _mm512_set1_epi16(1), 0xD8);  // c ? b : a
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

/// Codes of eight bits: scale * (code - zero), rounded to bf16.
struct ScaleAndZero {
  Float scale;
  Float zero;
};
struct ScaledBytes {
  static constexpr int kBits = 8;
  struct Codes {
    Int lower;  // octets 0 to 7
    Int upper;  // octets 8 to 15
  };
  static Codes load(const uint8_t* p) { return {load_int(p), load_int(p + 64)}; }
  /// Codes j and 4 + j of each octet.
  template <int j>
  static Pairs value_of(const Codes& codes, const ScaleAndZero& by) {
    return reinterpret_cast<__m512i>(
        _mm512_cvtne2ps_pbh(scaled<j>(codes.upper, by), scaled<j>(codes.lower, by)));
  }

 private:
  /// Those of eight octets, which follow each other.
  template <int j>
  static Float scaled(Int octets, const ScaleAndZero& by) {
    const __m512i index = _mm512_add_epi32(
        _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60),
        _mm512_set1_epi32(j));
    // The last bits of a float between 2^23 and 2^24 are an integer.
    const __m512i above = _mm512_set1_epi32(0x4B000000);
    const Float sum =
        float_of_bits(_mm512_mask_permutexvar_epi8(above, 0x1111111111111111, index, octets));
    return mul(sub(sum, add(by.zero, broadcast(0x1p23f))), by.scale);
  }
};

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

// NVFP4 in the same way: bf16 of 2^9 less those of a scale, and of 2^10 less those of 1.5 times the
// scale, which elements of 1.5, 3 and 6 take.

inline __m128i join_words(uint64_t first, uint64_t second) {
  return _mm_set_epi64x(static_cast<int64_t>(second), static_cast<int64_t>(first));
}
/// Whether none is negative or NaN.
inline bool scales_fit(__m128i codes) {
  return _mm_cmpge_epu8_mask(codes, _mm_set1_epi8(0x7F)) == 0;
}
/// The two words for each scale; -1 where it is zero, which leaves nothing of any element.
inline Int scale_steps(__m128i codes) {
  // As f16 they are 2^-8 of what they should be.
  const __m256i halves = _mm256_slli_epi16(_mm256_cvtepu8_epi16(codes), 7);
  const Float scale = _mm512_cvtph_ps(halves);
  const Pairs both = upper_halves(scale, mul(scale, broadcast(1.5f)));
  const Int steps = _mm512_sub_epi16(_mm512_set1_epi32(0x40804000), both);  // bf16 of 4 and of 2
  const __mmask16 zeros = _mm512_testn_epi32_mask(both, both);
  return _mm512_mask_mov_epi32(steps, zeros, _mm512_set1_epi32(-1));
}
/// A codebook as make_nvfp4_table() has it, times the two scales that lack `missing`.
inline Pairs subtract_scale_steps(Pairs table, const uint32_t* missing) {
  uint64_t both;
  __builtin_memcpy(&both, missing, 8);
  // Words of the codes 0 to 3, of 4 to 7, of 8 to 11 and 12 to 15: for powers of two the first of a
  // scale's, for the others the second.
  const __m512i words = _mm512_set_epi64(0x0706030205040100, 0x0706030205040100, 0x0706030205040100,
                                         0x0504010005040100, 0x0706030205040100, 0x0706030205040100,
                                         0x0706030205040100, 0x0504010005040100);
  return _mm512_subs_epu16(
      table, _mm512_shuffle_epi8(_mm512_set1_epi64(static_cast<int64_t>(both)), words));
}

// MXFP4 as bytes, for digit_codes.inl.h: four scales in a lane are those of a block.

/// Byte q of each lane in all bytes of quarter q.
inline Int spread_bytes(Int lanes) {
  return _mm512_shuffle_epi8(
      lanes, _mm512_set_epi64(0x0303030303030303, 0x0303030303030303, 0x0202020202020202,
                              0x0202020202020202, 0x0101010101010101, 0x0101010101010101, 0, 0));
}
/// The bits of `bits`, of whose bytes the lower four must be in `low`, too.
inline Int keep_low_bits(Int low, Int bits) {
  return _mm512_ternarylogic_epi32(low, bits, _mm512_set1_epi8(0x0F), 0xC4);  // b & (a | ~c)
}
/// The byte of a table of 64 for each byte's lower six bits.
inline Int look_up_bytes(Int indices, Int table) {
  return _mm512_permutexvar_epi8(indices, table);
}
/// The `count` bytes at p, then zeros; 64 if there are more.
inline Int load_first_bytes(const uint8_t* p, int64_t count) {
  return _mm512_maskz_loadu_epi8(count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1, p);
}
/// The largest of each lane's bytes in all of them.
inline Int max_byte_of_lane(Int v) {
  const Int pairs = _mm512_max_epu8(v, _mm512_rol_epi32(v, 16));
  return _mm512_max_epu8(pairs, _mm512_rol_epi32(pairs, 8));
}
/// For each byte 16 * (3 - difference) + 15, difference being what it lacks to `tops`, or 0 where
/// that is more than 3; and whether it is for one of the first `count`.
struct ByteShifts {
  Int bytes;
  bool behind;
};
inline ByteShifts shift_bytes(Int v, Int tops, int64_t count) {
  const Int difference = _mm512_sub_epi8(tops, v);
  const Int three = _mm512_set1_epi8(3);
  const uint64_t first = count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
  const __mmask64 near = _mm512_cmple_epu8_mask(difference, three);
  // No byte shifts into the next, as what it shifts is 3 at most.
  const Int shifts = _mm512_slli_epi32(_mm512_maskz_sub_epi8(near, three, difference), 4);
  return {or_bits(shifts, _mm512_maskz_set1_epi8(near, 15)), (~near & first) != 0};
}
/// 2^(c + kOffset) for the lowest byte c of each lane, NaN for 255: scales of E8M0.
template <int kOffset>
inline Float powers_of_two(Int codes) {
  const Int low = and_bits(codes, 0xFFu);
  const Float power = _mm512_scalef_ps(
      broadcast(1), _mm512_cvtepi32_ps(_mm512_add_epi32(low, _mm512_set1_epi32(kOffset))));
  const __mmask16 nan = _mm512_cmpeq_epi32_mask(low, _mm512_set1_epi32(255));
  return _mm512_mask_mov_ps(power, nan, broadcast(__builtin_nanf("")));
}
template <int kOffset>
inline float power_of_two(int code) {
  return _mm512_cvtss_f32(powers_of_two<kOffset>(_mm512_set1_epi32(code)));
}

/// A step in the order of kFollowingTiles of the 32 words at p.
inline Pairs load_step(const uint8_t* p) {
  const __m512i index = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);  // words 4 l and 16 + 4 l
  return _mm512_permutexvar_epi64(index, _mm512_loadu_si512(p));
}

}  // namespace
}  // namespace subbyte::cpu::amx
