#pragma once
// How codes become floats, scalar. Element<format>:
//   kBits, kCenter           value() gives element - kCenter; the centre is what zero points of
//                            integers lie near, and subtracting it early keeps sums small
//   kOrder                   of the activations that meet value<0>, value<1>, ... value<7>
//   Codes load(p)            the kBits bytes at p: one block of a row, eight codes
//   Float value<j>(codes)    code j

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/scalar/scales.h"

namespace subbyte::cpu::scalar {
namespace {

/// Unsigned integers of 2, 3, 4 and 8 bits.
template <int kCodeBits>
struct IntegerElement {
  static constexpr int kBits = kCodeBits;
  static constexpr int kCenter = 1 << (kBits - 1);
  static constexpr ActivationOrder kOrder = ActivationOrder::kOctets;
  using Codes = uint64_t;
  static Codes load(const uint8_t* p) {
    Codes codes = 0;
    for (int i = 0; i < kBits; ++i) codes |= Codes{p[i]} << (8 * i);
    return codes;
  }
  template <int j>
  static Float value(Codes codes) {
    const int code = static_cast<int>((codes >> (kBits * j)) & ((1u << kBits) - 1));
    return static_cast<Float>(code - kCenter);
  }
};

template <Format kElement>
struct Element;

template <>
struct Element<Format::kU2> : IntegerElement<2> {};
template <>
struct Element<Format::kU3> : IntegerElement<3> {};
template <>
struct Element<Format::kU4> : IntegerElement<4> {};
template <>
struct Element<Format::kU8> : IntegerElement<8> {};

template <>
struct Element<Format::kE2M1> {
  static constexpr int kBits = 4;
  static constexpr int kCenter = 0;
  static constexpr ActivationOrder kOrder = ActivationOrder::kOctets;
  using Codes = uint32_t;
  static Codes load(const uint8_t* p) { return read<uint32_t>(p); }
  template <int j>
  static Float value(Codes codes) {
    constexpr float kTable[16] = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                                  -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    return kTable[(codes >> (4 * j)) & 15];
  }
};

template <typename T>
struct DenseElement {
  static constexpr int kBits = 8 * sizeof(T);
  static constexpr int kCenter = 0;
  static constexpr ActivationOrder kOrder = ActivationOrder::kNatural;
  using Codes = const uint8_t*;
  static Codes load(const uint8_t* p) { return p; }
  template <int j>
  static Float value(Codes codes) {
    return to_float(read<T>(codes + sizeof(T) * j));
  }
};

template <>
struct Element<Format::kBF16> : DenseElement<BFloat16> {};
template <>
struct Element<Format::kF16> : DenseElement<Float16> {};
template <>
struct Element<Format::kF32> : DenseElement<float> {};

}  // namespace
}  // namespace subbyte::cpu::scalar
