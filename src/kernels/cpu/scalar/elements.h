#pragma once
// How codes become floats, scalar: Element<format>, see IsElement in generic/concepts.inl.h.

#include <type_traits>

#include "formats/ggml_tables.h"
#include "formats/normal_float_tables.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/generic/constant_table.h"
#include "kernels/cpu/scalar/scales.h"

namespace subbyte::cpu::scalar {
namespace {

#include "kernels/cpu/generic/codebooks.inl.h"

template <Format kElement>
struct TableElement : TableTraits<kElement> {
  static constexpr int kBits = Codebook<kElement>::kBits;
  // Up to four bits the codes are the word of a lane, as on machines with vectors.
  using Word = std::conditional_t<kBits <= 4, uint32_t, uint64_t>;
  struct Codes {
    Word word;
    const float* values;
  };
  static Codes load(const uint8_t* p, const float* values) {
    Word word = 0;
    for (int i = 0; i < kBits; ++i) word |= Word{p[i]} << (8 * i);
    return {word, values};
  }
  template <int j>
  static Float value(const Codes& codes) {
    return codes.values[(codes.word >> (kBits * j)) & ((1 << kBits) - 1)];
  }
};

/// Integers of five to seven bits.
template <int kCodeBits>
struct LongInteger : ElementTraits<kCodeBits, 1 << (kCodeBits - 1)> {
  using Codes = uint64_t;
  static Codes load(const uint8_t* p) {
    Codes codes = 0;
    for (int i = 0; i < kCodeBits; ++i) codes |= Codes{p[i]} << (8 * i);
    return codes;
  }
  template <int j>
  static Float value(Codes codes) {
    constexpr int kCenter = 1 << (kCodeBits - 1);
    return static_cast<Float>(static_cast<int>(codes >> (kCodeBits * j) & (2 * kCenter - 1)) -
                              kCenter);
  }
};
template <>
struct Element<Format::kU5> : LongInteger<5> {};
template <>
struct Element<Format::kU6> : LongInteger<6> {};
template <>
struct Element<Format::kU7> : LongInteger<7> {};

/// Indices of vectors of kSize numbers.
template <int kSize>
struct OneOfVectors : ElementTraits<8 / kSize> {
  static constexpr bool kTakesCodebooks = true;
  struct Codes {
    const uint8_t* indices;
    const float* vectors;
  };
  static Codes load(const uint8_t* p, const float* codebook) { return {p, codebook}; }
  template <int j>
  static Float value(const Codes& codes) {
    return codes.vectors[kSize * codes.indices[j / kSize] + j % kSize];
  }
};
template <>
struct Element<Format::kVQ2> : OneOfVectors<4> {};
template <>
struct Element<Format::kVQ4> : OneOfVectors<2> {};

constexpr auto kE4m3Floats =
    make_table<float, 256>([](int i) { return e4m3_to_float(static_cast<uint8_t>(i)); });

template <>
struct Element<Format::kE4M3> : ElementTraits<8> {
  using Codes = const uint8_t*;
  static Codes load(const uint8_t* p) { return p; }
  template <int j>
  static Float value(Codes codes) {
    return kE4m3Floats.values[codes[j]];
  }
};

template <>
struct Element<Format::kU8> : ElementTraits<8, 128> {
  using Codes = const uint8_t*;
  static Codes load(const uint8_t* p) { return p; }
  template <int j>
  static Float value(Codes codes) {
    return static_cast<Float>(codes[j] - kCenter);
  }
};

}  // namespace
}  // namespace subbyte::cpu::scalar
