#pragma once
// From sums to results: the last factor, bias, the gate's activation, residual, rounding.

#include <cstdint>

#include "kernels/cuda/device/arguments.h"
#include "kernels/cuda/device/words.h"

namespace subbyte::cuda {

template <class Number>
__device__ __forceinline__ float load_number(const void* p, int64_t i) {
  return Number::to_float(static_cast<const uint16_t*>(p)[i]);
}

template <class Number>
__device__ __forceinline__ void store_number(void* p, int64_t i, float value) {
  static_cast<uint16_t*>(p)[i] = static_cast<uint16_t>(Number::pair_of_float(value));
}

__device__ __forceinline__ float gated(Activation activation, float gate, float up) {
  if (activation == Activation::kClampedSwiGLU) {
    gate = fminf(gate, 7.0f);  // NaN stays NaN: below, in up
    up = fminf(fmaxf(up, -7.0f), 7.0f);
    return gate / (1.0f + expf(-1.702f * gate)) * (up + 1.0f);
  }
  return gate / (1.0f + expf(-gate)) * up;
}

/// Sums of rows `row` and `row` + 8 of a strip, of one token.
template <class Number>
__device__ __forceinline__ void finish(const LinearArguments& a, int strip, int row, int64_t token,
                                       float low, float high) {
  const WeightArguments& w = a.weights;
  const int64_t n0 = source_row(w.row_order, strip, row, w.rows);
  const int64_t n1 = source_row(w.row_order, strip, row + 8, w.rows);
  low *= w.gain;
  high *= w.gain;
  if (a.bias != nullptr) {
    if (n0 < w.rows) low += load_number<Number>(a.bias, n0);
    if (n1 < w.rows) high += load_number<Number>(a.bias, n1);
  }
  if (a.activation != Activation::kNone) {
    const int64_t unit = strip * int64_t{8} + row;
    if (unit >= w.rows / 2) return;
    float value = gated(a.activation, low, high);
    if (a.residual != nullptr) {
      value += load_number<Number>(a.residual, token * a.residual_stride + unit);
    }
    store_number<Number>(a.y, token * a.y_stride + unit, value);
    return;
  }
  if (a.residual != nullptr) {
    const int64_t at = token * a.residual_stride;
    if (n0 < w.rows) low += load_number<Number>(a.residual, at + n0);
    if (n1 < w.rows) high += load_number<Number>(a.residual, at + n1);
  }
  if (n0 < w.rows) store_number<Number>(a.y, token * a.y_stride + n0, low);
  if (n1 < w.rows) store_number<Number>(a.y, token * a.y_stride + n1, high);
}

/// Eight neighbours, 16 bytes.
template <class Number>
__device__ __forceinline__ void store_numbers(void* p, int64_t i, const float* values) {
  uint4 v;
  v.x = Number::pair_of_floats(values[0], values[1]);
  v.y = Number::pair_of_floats(values[2], values[3]);
  v.z = Number::pair_of_floats(values[4], values[5]);
  v.w = Number::pair_of_floats(values[6], values[7]);
  *reinterpret_cast<uint4*>(static_cast<uint16_t*>(p) + i) = v;
}

/// The sums of a whole strip, of one token.
template <class Number>
__device__ __forceinline__ void finish_strip(const LinearArguments& a, int strip, int64_t token,
                                             float (&values)[kStripRows]) {
  const int64_t at = token * a.y_stride + strip * int64_t{kStripRows};
  const bool plain = a.weights.row_order == RowOrder::kNatural && a.residual == nullptr &&
                     a.bias == nullptr && (strip + 1) * kStripRows <= a.weights.rows &&
                     (a.y_stride % 8 | reinterpret_cast<uintptr_t>(a.y) % 16) == 0;
  if (plain) {
#pragma unroll
    for (int i = 0; i < kStripRows; ++i) values[i] *= a.weights.gain;
    store_numbers<Number>(a.y, at, values);
    store_numbers<Number>(a.y, at + 8, values + 8);
    return;
  }
#pragma unroll
  for (int i = 0; i < kStripRows / 2; ++i) {
    finish<Number>(a, strip, i, token, values[i], values[i + 8]);
  }
}

}  // namespace subbyte::cuda
