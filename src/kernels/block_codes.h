#pragma once
// The arithmetic of blocks that share a scale, MXFP8, MXFP4 and NVFP4, on the bits of floats: the
// one text for the CPU's instruction sets and for GPUs, to the bits of the scalar codec
// (formats/mx_scale.h, formats/small_floats.cc). quantized_blocks.h says what is computed.
// Functions are static, as files for several instruction sets include it.

#include <cstdint>

#ifdef __CUDACC__
#define SUBBYTE_BLOCK_MEMBER __host__ __device__ __forceinline__
#else
#define SUBBYTE_BLOCK_MEMBER inline
#endif
#define SUBBYTE_BLOCK_FUNCTION static SUBBYTE_BLOCK_MEMBER

namespace subbyte::blocks {

inline constexpr uint32_t kInfinity = 0x7F800000;  // of f32
inline constexpr uint32_t kMagnitude = 0x7FFFFFFF;
inline constexpr uint32_t kNanBits = 0x7FC00000;

SUBBYTE_BLOCK_FUNCTION float as_float(uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}
SUBBYTE_BLOCK_FUNCTION uint32_t as_bits(float value) {
  return __builtin_bit_cast(uint32_t, value);
}

/// A small float: kMax is its largest number as f32, kNan what a block of NaN is filled with.
template <int kMantissaBits, int kBiasOfFormat, uint32_t kMaxBits, uint32_t kSignBit,
          uint32_t kNanCode, int kCodeBits>
struct SmallFloat {
  static constexpr int kMantissa = kMantissaBits;
  static constexpr int kBias = kBiasOfFormat;
  static constexpr uint32_t kMax = kMaxBits;
  static constexpr uint32_t kSign = kSignBit;
  static constexpr uint32_t kNan = kNanCode;
  static constexpr int kBits = kCodeBits;
};
using E4M3 = SmallFloat<3, 7, 0x43E00000, 0x80, 0x7F, 8>;
using E5M2 = SmallFloat<2, 15, 0x47600000, 0x80, 0x7E, 8>;
using E2M1 = SmallFloat<1, 1, 0x40C00000, 0x8, 0, 4>;

/// The float of these bits, not NaN, rounded to nearest, ties to even; beyond kMax it saturates.
template <class Element>
SUBBYTE_BLOCK_FUNCTION uint32_t encode(uint32_t bits) {
  constexpr int kShift = 23 - Element::kMantissa;
  constexpr uint32_t kLeastNormal = static_cast<uint32_t>(128 - Element::kBias) << 23;
  // Adding this power of two leaves the subnormal's code in the lowest bits of the sum.
  constexpr uint32_t kMagic =
      static_cast<uint32_t>(127 + 23 + 1 - Element::kBias - Element::kMantissa) << 23;
  const uint32_t sign = (bits >> 31) * Element::kSign;
  uint32_t magnitude = bits & kMagnitude;
  magnitude = magnitude < Element::kMax ? magnitude : Element::kMax;
  const uint32_t rounded = magnitude + ((1u << (kShift - 1)) - 1) + (magnitude >> kShift & 1);
  const uint32_t normal =
      (rounded >> kShift) - (static_cast<uint32_t>(127 - Element::kBias) << Element::kMantissa);
  const uint32_t subnormal = as_bits(as_float(magnitude) + as_float(kMagic)) - kMagic;
  return sign | (magnitude < kLeastNormal ? subnormal : normal);
}

/// The rules of ScaleRule: the exponent goes up if the significand of amax, without its leading
/// one, is above this.
template <class Element>
SUBBYTE_BLOCK_FUNCTION uint32_t scale_threshold(int rule) {
  if (rule == 0) return 0x7FFFFF;
  return rule == 1 ? Element::kMax & 0x7FFFFF : 0x5FFFFF;
}

/// shared_exponent() of the float of the bits `amax`, whose sign is clear.
template <class Element>
SUBBYTE_BLOCK_FUNCTION uint32_t e8m0_of(uint32_t amax, uint32_t threshold) {
  constexpr uint32_t kMaxExponent = (Element::kMax >> 23) - 127;
  const uint32_t exponent = (amax >> 23) + ((amax & 0x7FFFFF) > threshold ? 1 : 0);
  if (amax > kInfinity) return 255;
  if (amax == kInfinity) return 254;
  return exponent > kMaxExponent ? exponent - kMaxExponent : 0;
}

/// Factor of elements: 1 / scale, NaN for 255.
SUBBYTE_BLOCK_FUNCTION float inverse_e8m0(uint32_t code) {
  const uint32_t power = code == 254 ? 0x400000 : (254 - code) << 23;
  return as_float(code == 255 ? kNanBits : power);
}

SUBBYTE_BLOCK_FUNCTION float e8m0_value(uint32_t code) {
  const uint32_t power = code == 0 ? 0x400000 : code << 23;
  return as_float(code == 255 ? kNanBits : power);
}

/// The value of an e4m3 code without sign.
SUBBYTE_BLOCK_FUNCTION float e4m3_value(uint32_t code) {
  if (code == E4M3::kNan) return as_float(kNanBits);
  return code < 8 ? static_cast<float>(code) * 0x1p-9f : as_float((code << 20) + (120u << 23));
}

/// NVFP4: amax / (6 * tensor_scale) as e4m3.
SUBBYTE_BLOCK_FUNCTION uint32_t e4m3_scale_of(uint32_t amax, float six_tensor_scales) {
  if (amax > kInfinity) return E4M3::kNan;
  return encode<E4M3>(as_bits(as_float(amax) / six_tensor_scales));
}

SUBBYTE_BLOCK_FUNCTION float inverse_e4m3(uint32_t code, float tensor_scale) {
  return code == 0 ? 0.0f : 1.0f / (e4m3_value(code) * tensor_scale);
}

/// Where the scale of a row and a group lies; `groups` of a row with padding, in fours for the
/// swizzled layouts 1 (128x4) and 2 (8x4) of ScaleLayout.
SUBBYTE_BLOCK_FUNCTION int64_t scale_place(int layout, int64_t row, int64_t group, int64_t groups) {
  if (layout == 0) return row * groups + group;
  if (layout == 1) {
    return (row / 128 * (groups / 4) + group / 4) * 512 + row % 32 * 16 + row % 128 / 32 * 4 +
           group % 4;
  }
  return (row / 8 * (groups / 4) + group / 4) * 32 + row % 8 * 4 + group % 4;
}

}  // namespace subbyte::blocks
