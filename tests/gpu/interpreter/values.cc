#include "values.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <unordered_map>

namespace subbyte::interpreter {
namespace {

float half_number(uint16_t bits) {
  return static_cast<float>(bits_as<_Float16>(bits));
}

uint16_t half_bits(double value) {
  return value != value ? 0x7fff : bits_as<uint16_t>(static_cast<_Float16>(value));
}

/// Rounds to float such that rounding once more gives what rounding once would have given: towards
/// zero, and to an odd last bit where something is lost.
uint32_t odd_bits(double value) {
  auto rounded = static_cast<float>(value);
  if (std::fabs(static_cast<double>(rounded)) > std::fabs(value)) {
    rounded = std::nextafter(rounded, 0.0f);
  }
  const auto bits = bits_as<uint32_t>(rounded);
  return static_cast<double>(rounded) == value ? bits : bits | 1;
}

uint16_t bf16_bits(double value) {
  if (value != value) return 0x7fff;
  const uint32_t bits = odd_bits(value);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/// PTX ISA 9.0, "Alternate Floating-Point Data Formats": no infinity, and one NaN of each sign.
float e4m3_number(uint8_t bits) {
  const int exponent = bits >> 3 & 15;
  const auto mantissa = static_cast<float>(bits & 7);
  float value =
      exponent != 0 ? std::ldexp(1 + mantissa / 8, exponent - 7) : std::ldexp(mantissa / 8, -6);
  if ((bits & 127) == 127) value = std::numeric_limits<float>::quiet_NaN();
  return (bits & 128) != 0 ? -value : value;
}

/// The upper half of an f16.
float e5m2_number(uint8_t bits) {
  return half_number(static_cast<uint16_t>(bits << 8));
}

/// Numbers of the codes without a sign, up to the largest finite one.
template <int kCount>
std::array<float, kCount> table_of(float (*number)(uint8_t)) {
  std::array<float, kCount> table;
  for (int i = 0; i < kCount; ++i) table[i] = number(static_cast<uint8_t>(i));
  return table;
}

template <typename Table>
uint8_t nearest_code(const Table& table, double value) {
  if (value != value) return 0x7f;
  const double size = std::min<double>(std::fabs(value), table.back());
  auto after =
      static_cast<size_t>(std::lower_bound(table.begin(), table.end(), size) - table.begin());
  if (after > 0) {
    const double above = table[after] - size;
    const double below = size - table[after - 1];
    if (below < above || (below == above && after % 2 == 1)) --after;
  }
  return static_cast<uint8_t>(after | (std::signbit(value) ? 128 : 0));
}

uint8_t e4m3_bits(double value) {
  static const auto table = table_of<0x7f>(e4m3_number);
  return nearest_code(table, value);
}

uint8_t e5m2_bits(double value) {
  static const auto table = table_of<0x7c>(e5m2_number);
  return nearest_code(table, value);
}

}  // namespace

Type type_named(std::string_view word) {
  static const std::unordered_map<std::string_view, Type> types = {
      {"pred", Type::kPred},     {"b8", Type::kB8},         {"b16", Type::kB16},
      {"b32", Type::kB32},       {"b64", Type::kB64},       {"u8", Type::kU8},
      {"u16", Type::kU16},       {"u32", Type::kU32},       {"u64", Type::kU64},
      {"s8", Type::kS8},         {"s16", Type::kS16},       {"s32", Type::kS32},
      {"s64", Type::kS64},       {"f16", Type::kF16},       {"bf16", Type::kBf16},
      {"f32", Type::kF32},       {"f64", Type::kF64},       {"tf32", Type::kTf32},
      {"e4m3", Type::kE4m3},     {"e5m2", Type::kE5m2},     {"f16x2", Type::kF16x2},
      {"bf16x2", Type::kBf16x2}, {"e4m3x2", Type::kE4m3x2}, {"e5m2x2", Type::kE5m2x2}};
  const auto found = types.find(word);
  return found == types.end() ? Type::kNone : found->second;
}

int width(Type type) {
  switch (type) {
    case Type::kB8:
    case Type::kU8:
    case Type::kS8:
    case Type::kE4m3:
    case Type::kE5m2:
      return 1;
    case Type::kB16:
    case Type::kU16:
    case Type::kS16:
    case Type::kF16:
    case Type::kBf16:
    case Type::kE4m3x2:
    case Type::kE5m2x2:
      return 2;
    case Type::kB64:
    case Type::kU64:
    case Type::kS64:
    case Type::kF64:
      return 8;
    default:
      return 4;
  }
}

bool is_signed(Type type) {
  return type == Type::kS8 || type == Type::kS16 || type == Type::kS32 || type == Type::kS64;
}

bool is_float(Type type) {
  return type == Type::kF16 || type == Type::kBf16 || type == Type::kF32 || type == Type::kF64;
}

Type half_of(Type type) {
  switch (type) {
    case Type::kF16x2:
      return Type::kF16;
    case Type::kBf16x2:
      return Type::kBf16;
    case Type::kE4m3x2:
      return Type::kE4m3;
    case Type::kE5m2x2:
      return Type::kE5m2;
    default:
      return Type::kNone;
  }
}

double number_of(Type type, uint64_t bits) {
  switch (type) {
    case Type::kF16:
      return half_number(static_cast<uint16_t>(bits));
    case Type::kBf16:
      return float_of((bits & 0xffff) << 16);
    case Type::kE4m3:
      return e4m3_number(static_cast<uint8_t>(bits));
    case Type::kE5m2:
      return e5m2_number(static_cast<uint8_t>(bits));
    case Type::kF64:
      return bits_as<double>(bits);
    case Type::kTf32:
      return float_of(bits & 0xffffe000);
    default:
      return float_of(bits);
  }
}

uint64_t rounded_bits(Type type, double value) {
  switch (type) {
    case Type::kF16:
      return half_bits(value);
    case Type::kBf16:
      return bf16_bits(value);
    case Type::kE4m3:
      return e4m3_bits(value);
    case Type::kE5m2:
      return e5m2_bits(value);
    case Type::kF64:
      return bits_as<uint64_t>(value);
    default:
      return bits_of(static_cast<float>(value));
  }
}

uint64_t low_bits(Type type, uint64_t value) {
  switch (width(type)) {
    case 1:
      return value & 0xff;
    case 2:
      return value & 0xffff;
    case 4:
      return value & 0xffffffff;
    default:
      return value;
  }
}

int64_t signed_bits(Type type, uint64_t value) {
  switch (width(type)) {
    case 1:
      return static_cast<int8_t>(value);
    case 2:
      return static_cast<int16_t>(value);
    case 4:
      return static_cast<int32_t>(value);
    default:
      return static_cast<int64_t>(value);
  }
}

double element(Type type, uint32_t bits, int index) {
  const uint32_t own = bits >> (8 * width(type) * index);
  switch (type) {
    case Type::kU8:
      return static_cast<uint8_t>(own);
    case Type::kS8:
      return static_cast<int8_t>(own);
    default:
      return number_of(type, own);
  }
}

}  // namespace subbyte::interpreter
