#pragma once
// dialect.h for the host: what the instructions of the GPU do, by the codecs of the formats layer.
// It lets every decoder be tested without a GPU.

#include <cmath>
#include <cstdint>

#include "formats/format.h"

#define SUBBYTE_KERNEL_FUNCTION inline

namespace subbyte::gpu {

inline uint32_t and_or(uint32_t a, uint32_t b, uint32_t c) {
  return (a & b) | c;
}

inline uint32_t spread_bytes(uint32_t w, int j, uint32_t high) {
  const uint32_t bytes = w >> (16 * j);
  return (bytes & 0xff) | (bytes & 0xff00) << 8 | (high & 0xff) << 8 | (high & 0xff) << 24;
}

inline uint32_t spread_signed(uint32_t w, int j) {
  const auto low = static_cast<int8_t>(w >> (16 * j));
  const auto high = static_cast<int8_t>(w >> (16 * j + 8));
  return (static_cast<uint32_t>(low) & 0xffff) | static_cast<uint32_t>(high) << 16;
}

inline uint32_t pick_bytes(uint32_t a, uint32_t b, uint32_t which) {
  uint32_t picked = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t place = which >> (4 * i) & 7;
    picked |= ((place < 4 ? a : b) >> (8 * (place % 4)) & 0xff) << (8 * i);
  }
  return picked;
}

/// Pairs of floats of `kFormat`. A double holds every sum and product of the decoders exactly.
template <Format kFormat>
struct HostX2 {
  static double low(uint32_t pair) { return info(kFormat).decode(pair & 0xffff); }
  static double high(uint32_t pair) { return info(kFormat).decode(pair >> 16); }
  static uint32_t join(double low, double high) {
    const FormatInfo& format = info(kFormat);
    return format.encode(low, Rounding::kNearestEven) | format.encode(high, Rounding::kNearestEven)
                                                            << 16;
  }
  static uint32_t sub(uint32_t a, uint32_t b) { return join(low(a) - low(b), high(a) - high(b)); }
  static uint32_t mul(uint32_t a, uint32_t b) { return join(low(a) * low(b), high(a) * high(b)); }
  static uint32_t fma(uint32_t a, uint32_t b, uint32_t c) {
    return join(std::fma(low(a), low(b), low(c)), std::fma(high(a), high(b), high(c)));
  }
  static uint32_t from_e4m3(uint32_t w, int j) {
    const FormatInfo& e4m3 = info(Format::kE4M3);
    return join(e4m3.decode(w >> (16 * j) & 0xff), e4m3.decode(w >> (16 * j + 8) & 0xff));
  }
  static uint32_t splat(int value) { return join(value, value); }
  static uint32_t splat_float(float value) { return join(value, value); }
};

struct F16 : HostX2<Format::kF16> {
  static constexpr uint32_t kMagic = 0x64006400;
  static constexpr uint32_t kSixteenth = 0x2c002c00;
  static constexpr bool kIsF16 = true;
  static constexpr bool kHasSubnormals = true;
  static constexpr bool kHasE4M3 = true;
};

struct BF16 : HostX2<Format::kBF16> {
  static constexpr uint32_t kMagic = 0x43004300;
  static constexpr uint32_t kSixteen = 0x41804180;
  static constexpr bool kIsF16 = false;
  static constexpr bool kHasSubnormals = true;
  static constexpr bool kHasE4M3 = true;
};

struct Table {
  const uint32_t* pairs;
  const uint16_t* singles;

  uint32_t pair(uint32_t index) const { return pairs[index]; }
  uint32_t pair_at(uint32_t word, int bit, int bits) const {
    return pairs[word >> bit & ((1u << bits) - 1)];
  }
  void four_at(uint32_t word, int bit, uint32_t& low, uint32_t& high) const {
    low = pairs[2 * (word >> bit & 0xff)];
    high = pairs[2 * (word >> bit & 0xff) + 1];
  }
  uint32_t single(uint32_t code) const { return singles[code & 31]; }
};

}  // namespace subbyte::gpu
