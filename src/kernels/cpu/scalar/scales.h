#pragma once
// Scales and zero points, scalar.
//   broadcast_*(p)              the one at p
//   spread_*(p, count, lane)    number `lane` of the `count` at p

#include "base/float16.h"
#include "formats/weight_format.h"
#include "kernels/cpu/scalar/vec.h"

namespace subbyte::cpu::scalar {
namespace {

template <typename T>
inline T read(const uint8_t* p) {
  T value{};
  __builtin_memcpy(&value, p, sizeof(value));
  return value;
}

template <Format kScale>
inline Float broadcast_scale(const uint8_t* p) {
  if constexpr (kScale == Format::kF16) {
    return to_float(read<Float16>(p));
  } else if constexpr (kScale == Format::kBF16) {
    return to_float(read<BFloat16>(p));
  } else if constexpr (kScale == Format::kE8M0) {
    // 2^(code - 127): the exponent field of a float, but for the subnormal 2^-127 and NaN.
    const uint32_t extra = *p == 0 || *p == 255 ? 0x00400000u : 0;
    return std::bit_cast<float>((uint32_t{*p} << 23) | extra);
  } else {
    static_assert(kScale == Format::kF32);
    return read<float>(p);
  }
}

template <Format kScale>
inline Float spread_scales(const uint8_t* p, int, Lanes lane) {
  constexpr int kBytes = kScale == Format::kF32 ? 4 : kScale == Format::kE8M0 ? 1 : 2;
  return broadcast_scale<kScale>(p + kBytes * lane);
}

template <Zero kZero>
inline Float broadcast_zero(const uint8_t* p) {
  if constexpr (kZero == Zero::kU8) {
    return *p;
  } else {
    static_assert(kZero == Zero::kU16);
    return read<uint16_t>(p);
  }
}

template <Zero kZero>
inline Float spread_zeros(const uint8_t* p, int, Lanes lane) {
  return broadcast_zero<kZero>(p + zero_bytes(kZero) * lane);
}

}  // namespace
}  // namespace subbyte::cpu::scalar
