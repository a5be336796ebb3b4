#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace subbyte::interpreter {

/// The types of PTX (PTX ISA 9.0, "Fundamental Types", "Alternate Floating-Point Data Formats",
/// "Packed Floating Point Data Types").
enum class Type : uint8_t {
  kNone,
  kPred,
  kB8,
  kB16,
  kB32,
  kB64,
  kU8,
  kU16,
  kU32,
  kU64,
  kS8,
  kS16,
  kS32,
  kS64,
  kF16,
  kBf16,
  kF32,
  kF64,
  kTf32,
  kE4m3,
  kE5m2,
  kF16x2,
  kBf16x2,
  kE4m3x2,
  kE5m2x2,
};

/// Type of a word such as "f32" of an instruction, or kNone.
Type type_named(std::string_view word);

/// Bytes in memory.
int width(Type type);

bool is_signed(Type type);
bool is_float(Type type);

/// The type of each half of a packed one, or kNone.
Type half_of(Type type);

template <typename To, typename From>
To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

inline float float_of(uint64_t bits) {
  return bits_as<float>(static_cast<uint32_t>(bits));
}
inline uint64_t bits_of(float value) {
  return bits_as<uint32_t>(value);
}

/// A number of any floating-point type, as a register holds it.
double number_of(Type type, uint64_t bits);

/// The nearest number of a type, ties to even; e4m3 and e5m2 saturate.
uint64_t rounded_bits(Type type, double value);

/// The lowest bits of a value, as many as a type has, without and with their sign.
uint64_t low_bits(Type type, uint64_t value);
int64_t signed_bits(Type type, uint64_t value);

/// Element `index` of a register that holds several of a type.
double element(Type type, uint32_t bits, int index);

/// Does to both halves of packed registers what `f` does to a number each, given as bits.
template <typename F, typename... Bits>
uint64_t each_half(F f, Bits... bits) {
  return f((bits & 0xffff)...) | f((bits >> 16 & 0xffff)...) << 16;
}

}  // namespace subbyte::interpreter
