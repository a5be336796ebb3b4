#pragma once
// How codes become floats, scalar. Element<format>:
//   kBits, kCenter           value() gives element - kCenter; the centre is what zero points of
//                            integers lie near, and subtracting it early keeps sums small
//   kOrder                   of the activations that meet value<0>, value<1>, ... value<7>
//   Codes load(p)            the kBits bytes at p: one block of a row, eight codes
//   Float value<j>(codes)    code j

#include <type_traits>

#include "formats/normal_float_tables.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/scalar/scales.h"

namespace subbyte::cpu::scalar {
namespace {

#include "kernels/cpu/generic/codebooks.inl.h"

template <Format kElement>
struct Element;

template <Format kElement>
struct TableElement {
  static constexpr int kBits = Codebook<kElement>::kBits;
  static constexpr int kCenter = Codebook<kElement>::kCenter;
  static constexpr InputOrder kOrder = InputOrder::kK8;
  // Up to four bits the codes are the word of a lane, as on machines with vectors.
  using Codes = std::conditional_t<kBits <= 4, uint32_t, uint64_t>;
  static Codes load(const uint8_t* p) {
    Codes codes = 0;
    for (int i = 0; i < kBits; ++i) codes |= Codes{p[i]} << (8 * i);
    return codes;
  }
  template <int j>
  static Float value(Codes codes) {
    constexpr int kSize = 1 << kBits;
    return kFloatTable<kElement, kSize>.values[(codes >> (kBits * j)) & (kSize - 1)];
  }
};

template <>
struct Element<Format::kU2> : TableElement<Format::kU2> {};
template <>
struct Element<Format::kU3> : TableElement<Format::kU3> {};
template <>
struct Element<Format::kU4> : TableElement<Format::kU4> {};
template <>
struct Element<Format::kE2M1> : TableElement<Format::kE2M1> {};
template <>
struct Element<Format::kNF4> : TableElement<Format::kNF4> {};
template <>
struct Element<Format::kNFL2> : TableElement<Format::kNFL2> {};
template <>
struct Element<Format::kNFL3> : TableElement<Format::kNFL3> {};
template <>
struct Element<Format::kNFL4> : TableElement<Format::kNFL4> {};
template <>
struct Element<Format::kNFL5> : TableElement<Format::kNFL5> {};

template <>
struct Element<Format::kU8> {
  static constexpr int kBits = 8;
  static constexpr int kCenter = 128;
  static constexpr InputOrder kOrder = InputOrder::kK8;
  using Codes = const uint8_t*;
  static Codes load(const uint8_t* p) { return p; }
  template <int j>
  static Float value(Codes codes) {
    return static_cast<Float>(codes[j] - kCenter);
  }
};

template <typename T>
struct DenseElement {
  static constexpr int kBits = 8 * sizeof(T);
  static constexpr int kCenter = 0;
  static constexpr InputOrder kOrder = InputOrder::kContiguous;
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
