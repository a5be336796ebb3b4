#pragma once
// Keys and values in e4m3: the elements of a key, or of a value, share one power of two as scale.
//
//   element   s eeee mmm, bias 7: at most 448; NaN is 0x7F
//   scale     e8m0, 2^(code - 127), the smallest power with which all elements are at most 448.
//             Codes 1 to 246; 255 is NaN: an element was infinite or NaN, and all of them are now
//
// A power of two costs no precision, as elements are floats, and makes what is read back exact in
// tf32 and f32: so all machines compute with the same numbers. This is the one text for all of
// them, on the bits of floats; functions are static, as files for several instruction sets include
// it.

#include <cstdint>

#ifdef __CUDACC__
#define SUBBYTE_KV_FUNCTION static __host__ __device__ __forceinline__
#else
#define SUBBYTE_KV_FUNCTION static inline
#endif

namespace subbyte::e4m3 {

inline constexpr uint32_t kInfinity = 0x7F800000;  // of f32
inline constexpr uint32_t kNanScale = 255;
inline constexpr uint32_t kLeastScale = 1;
inline constexpr uint32_t kMaxScale = 246;  // so that the factor of decode() is finite

/// The scale of elements whose magnitudes are at most the float of these bits; any NaN is more than
/// all numbers.
SUBBYTE_KV_FUNCTION uint32_t scale_of(uint32_t largest) {
  if (largest >= kInfinity) return kNanScale;
  constexpr uint32_t kOf448 = 8;  // 448 = 1.75 * 2^8
  constexpr uint32_t k1_75 = 0x600000;
  const uint32_t code = (largest >> 23) + ((largest & 0x7FFFFF) > k1_75 ? 1 : 0);
  if (code < kOf448 + kLeastScale) return kLeastScale;
  return code - kOf448 < kMaxScale ? code - kOf448 : kMaxScale;
}

/// Bits of the float 1 / scale, 0 where the scale is NaN.
SUBBYTE_KV_FUNCTION uint32_t inverse_bits(uint32_t scale) {
  return scale == kNanScale ? 0 : (254 - scale) << 23;
}

/// Rounds the float of these bits to nearest, ties to even; beyond 448 it saturates.
SUBBYTE_KV_FUNCTION uint8_t encode(uint32_t bits) {
  constexpr uint32_t k448 = 0x43E00000;
  constexpr uint32_t kLeastNormal = 0x3C800000;  // 2^-6
  const uint32_t sign = bits >> 24 & 0x80;
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > kInfinity) return 0x7F;
  if (magnitude >= k448) return static_cast<uint8_t>(sign | 0x7E);
  if (magnitude >= kLeastNormal) {
    const uint32_t rounded = magnitude + 0x7FFFF + (magnitude >> 20 & 1);
    return static_cast<uint8_t>(sign | ((rounded >> 20) - (120u << 3)));
  }
  // Steps of 2^-9: the mantissa of 1.m * 2^e with its leading one is shifted by 141 - (e + 127).
  const uint32_t shift = 141 - (magnitude >> 23);
  if (shift > 24) return static_cast<uint8_t>(sign);  // at most half a step, which is even
  const uint32_t mantissa = (magnitude & 0x7FFFFF) | 0x800000;
  const uint32_t half = (1u << (shift - 1)) - 1 + (mantissa >> shift & 1);
  return static_cast<uint8_t>(sign | ((mantissa + half) >> shift));
}

/// Bits of an f16 that is 2^-8 times the element; NaN is left to the scale.
SUBBYTE_KV_FUNCTION uint16_t f16_bits(uint8_t code) {
  return static_cast<uint16_t>(((code & 0x80) << 8) | ((code & 0x7F) << 7));
}

/// Bits of the float that turns what f16_bits() gives into the number: 2^8 times the scale.
SUBBYTE_KV_FUNCTION uint32_t factor_bits(uint32_t scale) {
  return scale == kNanScale ? 0x7FC00000 : (scale + 8) << 23;
}

}  // namespace subbyte::e4m3
