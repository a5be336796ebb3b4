#pragma once
// Scales and zero points, scalar.

#include "formats/weight_format.h"
#include "kernels/cpu/scalar/vec.h"

namespace subbyte::cpu::scalar {
namespace {

/// mantissa * 2^exponent, in normal numbers only.
constexpr float scaled(uint32_t mantissa, int exponent) {
  return static_cast<float>(mantissa) *
         std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
}

constexpr float e4m3_to_float(uint8_t code) {
  const uint32_t exponent = (code >> 3) & 15u;
  const uint32_t mantissa = code & 7u;
  if (exponent == 15 && mantissa == 7) return std::bit_cast<float>(0x7FC00000u);
  const float value =
      exponent == 0 ? scaled(mantissa, -9) : scaled(mantissa + 8, static_cast<int>(exponent) - 10);
  return code < 128 ? value : -value;
}

inline float e4m4_to_float(uint8_t code) {
  const uint32_t exponent = code >> 4;
  const uint32_t mantissa = code & 15u;
  return exponent == 0 ? scaled(mantissa, -14)
                       : scaled(mantissa + 16, static_cast<int>(exponent) - 15);
}

/// The scale at p.
template <Format kScale>
inline Float load_scales(const uint8_t* p, int) {
  if constexpr (kScale == Format::kF16) {
    return load_f16(p);
  } else if constexpr (kScale == Format::kBF16) {
    return load_bf16(p);
  } else if constexpr (kScale == Format::kE8M0) {
    // 2^(code - 127): the exponent field of a float, but for the subnormal 2^-127 and NaN.
    const uint32_t extra = *p == 0 || *p == 255 ? 0x00400000u : 0;
    return std::bit_cast<float>((uint32_t{*p} << 23) | extra);
  } else if constexpr (kScale == Format::kE4M3) {
    return e4m3_to_float(*p);
  } else if constexpr (kScale == Format::kE4M4) {
    return e4m4_to_float(*p);
  } else {
    static_assert(kScale == Format::kF32);
    return load_f32(p);
  }
}

/// The zero point at p.
template <Zero kZero>
inline Float load_zeros(const uint8_t* p, int) {
  if constexpr (kZero == Zero::kU8) {
    return *p;
  } else {
    static_assert(kZero == Zero::kU16);
    return read<uint16_t>(p);
  }
}

}  // namespace
}  // namespace subbyte::cpu::scalar
