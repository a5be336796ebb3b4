#pragma once
// The vector vocabulary with vectors of one: what every other machine runs, and what the other
// instruction sets are compared with. fma() rounds twice here, because a fused multiply-add
// without the instruction is a slow library call.

#include <cstdint>

namespace subbyte::cpu::scalar {
namespace {

constexpr int kLanes = 1;
using Float = float;
using Lanes = int;

constexpr int kGemvRows = 2;         // M = 1 and 2
constexpr int kGemvRowsManyM = 1;    // M = 3 and 4
constexpr int kGemmTileRows = 2;     // activations
constexpr int kGemmTileOutputs = 4;  // a multiple of 4

constexpr int kPrefetchLevel = 2;  // nothing is asked for
constexpr int64_t kGemvPrefetchBytes = 0;

inline Float zero() {
  return 0;
}
inline Float broadcast(float value) {
  return value;
}
inline Float load(const float* p) {
  return *p;
}
inline void store(float* p, Float v) {
  *p = v;
}
inline Float add(Float a, Float b) {
  return a + b;
}
inline Float sub(Float a, Float b) {
  return a - b;
}
inline Float mul(Float a, Float b) {
  return a * b;
}
/// a * b + c
inline Float fma(Float a, Float b, Float c) {
  return a * b + c;
}
/// c - a * b
inline Float fnma(Float a, Float b, Float c) {
  return c - a * b;
}

using Int = uint32_t;  // an integer of two's complement, or four bytes

/// a > b ? a : b, so b where one of them is NaN.
inline Float max(Float a, Float b) {
  return a > b ? a : b;
}
inline Float magnitude(Float v) {
  return __builtin_fabsf(v);
}
/// factor / v where v > floor, else 0.
inline Float reciprocal_above(Float v, float floor, float factor) {
  return v > floor ? factor / v : 0;
}

inline Int zero_int() {
  return 0;
}
inline Int load_int(const uint8_t* p) {
  Int v = 0;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}
inline void store_int(uint8_t* p, Int v) {
  __builtin_memcpy(p, &v, sizeof(v));
}
inline Int add_int(Int a, Int b) {
  return a + b;
}
inline Int sub_int(Int a, Int b) {
  return a - b;
}
inline Int and_bits(Int v, uint32_t bits) {
  return v & bits;
}
inline Int or_bits(Int a, Int b) {
  return a | b;
}
template <int n>
inline Int shift_left(Int v) {
  return v << n;
}
template <int n>
inline Int shift_right(Int v) {
  return v >> n;
}
inline Float int_to_float(Int v) {
  return static_cast<Float>(static_cast<int32_t>(v));
}
/// To nearest, ties to even, for magnitudes below 2^22; 0 for NaN.
inline Int round_to_int(Float v) {
  constexpr Float kShift = 12582912.0f;  // 1.5 * 2^23: what is added to it loses its fraction
  if (!(v > -4194304.0f && v < 4194304.0f)) return 0;
  volatile Float shifted = v + kShift;
  return static_cast<Int>(static_cast<int32_t>(shifted - kShift));
}
/// Each byte < 16 of v as an index into the table.
inline Int lookup_bytes(const uint8_t (&table)[16], Int v) {
  Int bytes = 0;
  for (int i = 0; i < 32; i += 8) bytes |= Int{table[(v >> i) & 15]} << i;
  return bytes;
}
/// sum + the products of four bytes, a unsigned, x signed.
inline Int dot_bytes(Int sum, Int a, Int x) {
  for (int i = 0; i < 32; i += 8) {
    const int code = static_cast<uint8_t>(a >> i);
    sum += static_cast<Int>(code * static_cast<int8_t>(x >> i));
  }
  return sum;
}
/// The same with both signed.
inline Int dot_signed_bytes(Int sum, Int a, Int x) {
  for (int i = 0; i < 32; i += 8) {
    sum += static_cast<Int>(static_cast<int8_t>(a >> i) * static_cast<int8_t>(x >> i));
  }
  return sum;
}

/// Lanes from `count` on become zero.
inline Float keep_first(Float v, int count) {
  return count > 0 ? v : 0;
}

inline Float permute(Float v, Lanes) {
  return v;
}

/// Lane i: (first + i) / divisor.
inline Lanes divided_lanes(int first, int divisor) {
  return first / divisor;
}

/// The sums of four vectors.
inline void sum4(const Float* v, float* sums) {
  for (int i = 0; i < 4; ++i) sums[i] = v[i];
}

/// x holds kLanes octets; vector j of `out` gets element j of each.
inline void transpose_octets(const float* x, Float* out) {
  for (int j = 0; j < 8; ++j) out[j] = x[j];
}

}  // namespace
}  // namespace subbyte::cpu::scalar
