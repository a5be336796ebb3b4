#pragma once
// The vector vocabulary with vectors of one: what every other machine runs, and what the other
// instruction sets are compared with. fma() rounds twice here, because a fused multiply-add
// without the instruction is a slow library call.

#include <cstdint>

#include "base/float16.h"

namespace subbyte::cpu::scalar {
namespace {

constexpr int kLanes = 1;
using Float = float;
using Lanes = int;

constexpr int kGemvRows = 2;         // M = 1 and 2
constexpr int kGemvRowsManyM = 1;    // M = 3 and 4
constexpr int kGemmTileRows = 2;     // activations
constexpr int kGemmTileOutputs = 4;  // a multiple of 4

constexpr bool kGemvRowsAdjoin = false;
constexpr int kPrefetchLevel = 2;  // nothing is prefetched
constexpr int64_t kGemvPrefetchDistance = 0;

inline Float zero() {
  return 0;
}
inline Float broadcast(float value) {
  return value;
}
inline Float load(const float* p) {
  return *p;
}
template <typename T>
inline T read(const uint8_t* p) {
  T value{};
  __builtin_memcpy(&value, p, sizeof(value));
  return value;
}
inline Float load_bf16(const uint8_t* p) {
  return to_float(read<BFloat16>(p));
}
inline Float load_f16(const uint8_t* p) {
  return to_float(read<Float16>(p));
}
inline Float load_f32(const uint8_t* p) {
  return read<float>(p);
}
inline void store(float* p, Float v) {
  *p = v;
}
/// The first `count` <= kLanes floats at p, then zeros. Nothing after them is touched.
inline Float load_part(const float* p, int64_t count) {
  return count > 0 ? *p : 0;
}
inline void store_part(float* p, Float v, int64_t count) {
  if (count > 0) *p = v;
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
inline Float div(Float a, Float b) {
  return a / b;
}
inline bool are_finite(Float v) {
  return v - v == 0;
}
/// a * b + c
inline Float fma(Float a, Float b, Float c) {
  return a * b + c;
}
/// c - a * b
inline Float fnma(Float a, Float b, Float c) {
  return c - a * b;
}

/// a > b ? a : b, so b where one of them is NaN.
inline Float max(Float a, Float b) {
  return a > b ? a : b;
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

/// x holds kLanes runs of 8; vector j of `out` gets element j of each.
inline void transpose_k8(const float* x, Float* out) {
  for (int j = 0; j < 8; ++j) out[j] = x[j];
}

}  // namespace
}  // namespace subbyte::cpu::scalar
