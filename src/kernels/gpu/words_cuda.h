#pragma once
// dialect.h for CUDA. The instructions are named, so that the compiler neither fuses nor flushes.

#include <cstdint>

#define SUBBYTE_KERNEL_FUNCTION __device__ __forceinline__

namespace subbyte::gpu {

SUBBYTE_KERNEL_FUNCTION uint32_t and_or(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

SUBBYTE_KERNEL_FUNCTION uint32_t spread_bytes(uint32_t w, int j, uint32_t high) {
  return __byte_perm(w, high, j == 0 ? 0x4140 : 0x4342);
}

SUBBYTE_KERNEL_FUNCTION uint32_t spread_signed(uint32_t w, int j) {
  uint32_t d;
  asm("prmt.b32 %0, %1, 0, %2;" : "=r"(d) : "r"(w), "r"(j == 0 ? 0x9180 : 0xb3a2));
  return d;
}

/// Four bytes of the eight of a (0 to 3) and b (4 to 7), each by a digit of `which`, the lowest
/// byte by the lowest digit.
SUBBYTE_KERNEL_FUNCTION uint32_t pick_bytes(uint32_t a, uint32_t b, uint32_t which) {
  return __byte_perm(a, b, which);
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
inline constexpr bool kConvertsE4M3 = true;
#else
inline constexpr bool kConvertsE4M3 = false;
#endif

struct F16 {
  static constexpr uint32_t kMagic = 0x64006400;  // 1024, whose mantissa holds 10 bits
  static constexpr uint32_t kSixteenth = 0x2c002c00;
  static constexpr bool kIsF16 = true;
  static constexpr bool kHasSubnormals = true;
  static constexpr bool kHasE4M3 = kConvertsE4M3;

  static SUBBYTE_KERNEL_FUNCTION uint32_t sub(uint32_t a, uint32_t b) {
    uint32_t d;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
  }
  static SUBBYTE_KERNEL_FUNCTION uint32_t mul(uint32_t a, uint32_t b) {
    uint32_t d;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
  }
  static SUBBYTE_KERNEL_FUNCTION uint32_t fma(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t d;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
  }
  /// NaN stays one.
  static SUBBYTE_KERNEL_FUNCTION uint32_t from_e4m3(uint32_t w, int j) {
    uint16_t low;
    uint16_t high;
    asm("mov.b32 {%0, %1}, %2;" : "=h"(low), "=h"(high) : "r"(w));
    uint32_t d;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(d) : "h"(j == 0 ? low : high));
    return d;
  }
  /// The integer |value| <= 2048 in both halves.
  static SUBBYTE_KERNEL_FUNCTION uint32_t splat(int value) { return splat_float(value); }
  /// Rounded to nearest even.
  static SUBBYTE_KERNEL_FUNCTION uint32_t splat_float(float value) {
    uint32_t d;
    asm("cvt.rn.f16x2.f32 %0, %1, %1;" : "=r"(d) : "f"(value));
    return d;
  }
  static SUBBYTE_KERNEL_FUNCTION uint32_t pack_x2(float low, float high) {
    uint32_t d;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
    return d;
  }
  static SUBBYTE_KERNEL_FUNCTION float to_float(uint16_t bits) {
    float d;
    asm("cvt.f32.f16 %0, %1;" : "=f"(d) : "h"(bits));
    return d;
  }
};

struct BF16 {
  static constexpr uint32_t kMagic = 0x43004300;  // 128, whose mantissa holds 7 bits
  static constexpr uint32_t kSixteen = 0x41804180;
  static constexpr bool kIsF16 = false;
  static constexpr bool kHasSubnormals = true;
  static constexpr bool kHasE4M3 = kConvertsE4M3;

  static SUBBYTE_KERNEL_FUNCTION uint32_t sub(uint32_t a, uint32_t b) {
    return fma(b, 0xbf80bf80, a);
  }
  static SUBBYTE_KERNEL_FUNCTION uint32_t mul(uint32_t a, uint32_t b) {
    return fma(a, b, 0x80008000);
  }
  /// By f16 and float32, which hold every number of E4M3.
  static SUBBYTE_KERNEL_FUNCTION uint32_t from_e4m3(uint32_t w, int j) {
    const uint32_t pair = F16::from_e4m3(w, j);
    return pack_x2(F16::to_float(static_cast<uint16_t>(pair)),
                   F16::to_float(static_cast<uint16_t>(pair >> 16)));
  }
  static SUBBYTE_KERNEL_FUNCTION uint32_t fma(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t d;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
  }
  static SUBBYTE_KERNEL_FUNCTION uint32_t splat(int value) { return splat_float(value); }
  static SUBBYTE_KERNEL_FUNCTION uint32_t splat_float(float value) { return pack_x2(value, value); }
  static SUBBYTE_KERNEL_FUNCTION uint32_t pack_x2(float low, float high) {
    uint32_t d;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
    return d;
  }
  static SUBBYTE_KERNEL_FUNCTION float to_float(uint16_t bits) {
    return __uint_as_float(uint32_t{bits} << 16);
  }
};

/// Pairs of values lie in shared memory, a copy in each bank, so that the lanes of a warp never
/// wait for each other; 32 single values lie in the registers of the warp.
struct Table {
  uint32_t shared;  // address of the table, rows of 128 bytes
  uint32_t place;   // of this lane's copy in a row
  uint32_t value;   // of code `lane`

  SUBBYTE_KERNEL_FUNCTION uint32_t pair(uint32_t index) const { return load(index << 7 | place); }
  /// The pair whose index is `bits` bits of a word, from `bit` up: a shift, an and_or and a load.
  SUBBYTE_KERNEL_FUNCTION uint32_t pair_at(uint32_t word, int bit, int bits) const {
    return load(row(word, bit, bits));
  }
  /// Two pairs of an index of 8 bits, of which lanes l and l + 16 have one copy: they read at
  /// different times.
  SUBBYTE_KERNEL_FUNCTION void four_at(uint32_t word, int bit, uint32_t& low,
                                       uint32_t& high) const {
    asm("ld.shared.v2.u32 {%0, %1}, [%2];"
        : "=r"(low), "=r"(high)
        : "r"(shared + row(word, bit, 8)));
  }
  SUBBYTE_KERNEL_FUNCTION uint32_t single(uint32_t code) const {
    return __shfl_sync(~0u, value, static_cast<int>(code));
  }

 private:
  SUBBYTE_KERNEL_FUNCTION uint32_t row(uint32_t word, int bit, int bits) const {
    const uint32_t index = bit > 7 ? word >> (bit - 7) : word << (7 - bit);
    return and_or(index, ((1u << bits) - 1) << 7, place);
  }
  SUBBYTE_KERNEL_FUNCTION uint32_t load(uint32_t at) const {
    uint32_t d;
    asm("ld.shared.u32 %0, [%1];" : "=r"(d) : "r"(shared + at));
    return d;
  }
};

}  // namespace subbyte::gpu
