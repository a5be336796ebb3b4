#pragma once
// dialect.h for Metal. Its specification lets a GPU flush subnormal floats of all widths to zero,
// so nothing here depends on them: kHasSubnormals is false, and scales and weights that may be
// subnormal are converted by integer arithmetic.
//
// Apple's GPUs have no arithmetic on bf16x2; it goes through float. What decoders compute is exact
// in bf16, so cutting off the low half of the float is no rounding.

#include <metal_stdlib>

#define SUBBYTE_KERNEL_FUNCTION inline

using namespace metal;  // half2

namespace subbyte::gpu {

SUBBYTE_KERNEL_FUNCTION uint32_t and_or(uint32_t a, uint32_t b, uint32_t c) {
  return (a & b) | c;
}

SUBBYTE_KERNEL_FUNCTION uint32_t spread_bytes(uint32_t w, int j, uint32_t high) {
  const uint32_t bytes = w >> (16 * j);
  return (bytes & 0xff) | (bytes & 0xff00) << 8 | high << 8 | high << 24;
}

SUBBYTE_KERNEL_FUNCTION uint32_t spread_signed(uint32_t w, int j) {
  const uint32_t low = uint32_t(int32_t(w << (24 - 16 * j)) >> 24);
  const uint32_t high = uint32_t(int32_t(w << (16 - 16 * j)) >> 24);
  return (low & 0xffff) | high << 16;
}

SUBBYTE_KERNEL_FUNCTION uint32_t pick_bytes(uint32_t a, uint32_t b, uint32_t which) {
  uint32_t picked = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t place = which >> (4 * i) & 7;
    picked |= ((place < 4 ? a : b) >> (8 * (place % 4)) & 0xff) << (8 * i);
  }
  return picked;
}

struct F16 {
  static SUBBYTE_CONSTANT uint32_t kMagic = 0x64006400;  // 1024
  static SUBBYTE_CONSTANT uint32_t kSixteenth = 0x2c002c00;
  static SUBBYTE_CONSTANT uint32_t kTwo = 0x40004000;
  static SUBBYTE_CONSTANT uint32_t kMinusFour = 0xc400c400;
  static SUBBYTE_CONSTANT bool kIsF16 = true;
  static SUBBYTE_CONSTANT bool kHasSubnormals = false;
  static SUBBYTE_CONSTANT bool kHasE4M3 = false;

  static SUBBYTE_KERNEL_FUNCTION uint32_t sub(uint32_t a, uint32_t b) {
    return as_type<uint32_t>(as_type<half2>(a) - as_type<half2>(b));
  }
  static SUBBYTE_KERNEL_FUNCTION uint32_t fma(uint32_t a, uint32_t b, uint32_t c) {
    return as_type<uint32_t>(metal::fma(as_type<half2>(a), as_type<half2>(b), as_type<half2>(c)));
  }
  static SUBBYTE_KERNEL_FUNCTION uint32_t min(uint32_t a, uint32_t b) {
    return as_type<uint32_t>(metal::min(as_type<half2>(a), as_type<half2>(b)));
  }
  static SUBBYTE_KERNEL_FUNCTION uint32_t splat(int value) {
    return as_type<uint32_t>(half2(half(value)));
  }
  static SUBBYTE_KERNEL_FUNCTION float low(uint32_t pair) {
    return float(as_type<half>(uint16_t(pair)));
  }
  static SUBBYTE_KERNEL_FUNCTION float high(uint32_t pair) {
    return float(as_type<half>(uint16_t(pair >> 16)));
  }
  /// Rounded to nearest even.
  static SUBBYTE_KERNEL_FUNCTION uint16_t from_float(float value) {
    return as_type<uint16_t>(half(value));
  }
};

struct BF16 {
  static SUBBYTE_CONSTANT uint32_t kMagic = 0x43004300;  // 128
  static SUBBYTE_CONSTANT uint32_t kSixteen = 0x41804180;
  static SUBBYTE_CONSTANT uint32_t kTwo = 0x40004000;
  static SUBBYTE_CONSTANT uint32_t kMinusFour = 0xc080c080;
  static SUBBYTE_CONSTANT bool kIsF16 = false;
  static SUBBYTE_CONSTANT bool kHasSubnormals = false;
  static SUBBYTE_CONSTANT bool kHasE4M3 = false;

  static SUBBYTE_KERNEL_FUNCTION float low(uint32_t pair) { return as_type<float>(pair << 16); }
  static SUBBYTE_KERNEL_FUNCTION float high(uint32_t pair) {
    return as_type<float>(pair & 0xffff0000);
  }
  /// Joins floats that are numbers of bf16.
  static SUBBYTE_KERNEL_FUNCTION uint32_t join(float low, float high) {
    return as_type<uint32_t>(low) >> 16 | (as_type<uint32_t>(high) & 0xffff0000);
  }
  static SUBBYTE_KERNEL_FUNCTION uint32_t sub(uint32_t a, uint32_t b) {
    return join(low(a) - low(b), high(a) - high(b));
  }
  static SUBBYTE_KERNEL_FUNCTION uint32_t fma(uint32_t a, uint32_t b, uint32_t c) {
    return join(metal::fma(low(a), low(b), low(c)), metal::fma(high(a), high(b), high(c)));
  }
  static SUBBYTE_KERNEL_FUNCTION uint32_t min(uint32_t a, uint32_t b) {
    return join(metal::min(low(a), low(b)), metal::min(high(a), high(b)));
  }
  static SUBBYTE_KERNEL_FUNCTION uint32_t splat(int value) {
    return join(float(value), float(value));
  }
  /// Rounded to nearest even.
  static SUBBYTE_KERNEL_FUNCTION uint16_t from_float(float value) {
    const uint32_t bits = as_type<uint32_t>(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return uint16_t(bits >> 16 | 0x40);  // NaN stays one
    return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
};

/// In the memory of the threadgroup: pairs of values, or for 5 bits the 32 values.
struct Table {
  threadgroup const uint32_t* entries;

  SUBBYTE_KERNEL_FUNCTION uint32_t pair(uint32_t index) const { return entries[index]; }
  SUBBYTE_KERNEL_FUNCTION uint32_t pair_at(uint32_t word, int bit, int bits) const {
    return entries[word >> bit & ((1u << bits) - 1)];
  }
  SUBBYTE_KERNEL_FUNCTION void four_at(uint32_t word, int bit, thread uint32_t& low,
                                       thread uint32_t& high) const {
    low = entries[2 * (word >> bit & 0xff)];
    high = entries[2 * (word >> bit & 0xff) + 1];
  }
  SUBBYTE_KERNEL_FUNCTION uint32_t single(uint32_t code) const { return entries[code & 31]; }
};

}  // namespace subbyte::gpu
