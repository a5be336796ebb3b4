#pragma once
// What every kernel does before and after its main loop: tables in shared memory; from accumulators
// to results with the last factor, bias, the gate's activation, residual and rounding.

#include <cstdint>

#include "kernels/cuda/common/arguments.h"
#include "kernels/cuda/common/ptx.cuh"
#include "kernels/cuda/common/two_levels.cuh"
#include "kernels/gpu/decoders.h"

namespace subbyte::cuda {

// --- prologue ---

__device__ __forceinline__ float scale_value(uint32_t code, const ScaleRule& rule) {
  const uint32_t magnitude = code & rule.magnitude;
  const uint32_t bits = magnitude << rule.shift | (code & rule.sign) << rule.sign_shift;
  const float value = magnitude == 0 ? rule.zero : __uint_as_float(bits) * rule.factor;
  return magnitude >= rule.special ? __uint_as_float(0x7fc00000u) : value;
}

/// Values of all codes of a one-byte scale, by all threads of a CTA, which must synchronize before
/// they use them.
__device__ __forceinline__ void fill_scale_values(float* values, const ScaleRule& rule) {
  if (rule.bytes != 1) return;
  for (int i = threadIdx.x; i < 256; i += blockDim.x) values[i] = scale_value(i, rule);
}

/// Bytes of shared memory that fill_table() fills.
template <class Decoder>
__host__ __device__ constexpr int table_bytes() {
  if constexpr (Decoder::kHasTable) return Decoder::kPairs * kLanes * 4;
  return 0;
}

template <class Decoder>
concept HasVectors = requires {
  Decoder::kHasVectors;
};

/// What byte `index` stands for: a pair, or two.
template <class Decoder>
__device__ __forceinline__ uint2 vector_of(const WeightArguments& weights, int index) {
  using Number = typename Decoder::Number;
  if constexpr (Decoder::kBits == 4) {
    const float2 v = reinterpret_cast<const float2*>(weights.vectors)[index];
    return {Number::pack_x2(v.x, v.y), 0};
  } else {
    const float4 v = reinterpret_cast<const float4*>(weights.vectors)[index];
    return {Number::pack_x2(v.x, v.y), Number::pack_x2(v.z, v.w)};
  }
}

/// The table of a codebook, by all threads of a CTA, which must synchronize before they use it.
template <HasVectors Decoder>
__device__ Table fill_table(const WeightArguments& weights, uint32_t* shared) {
  const int lane = threadIdx.x % kLanes;
  for (int index = threadIdx.x; index < Decoder::kPairs; index += blockDim.x) {
    const uint2 vector = vector_of<Decoder>(weights, index);
#pragma unroll 4
    for (int i = 0; i < kLanes; ++i) {
      const int place = (i + lane) % kLanes;  // all lanes in banks of their own
      shared[index * kLanes + place] = Decoder::kBits == 4 || place % 2 == 0 ? vector.x : vector.y;
    }
  }
  return {shared_address(shared), Decoder::kBits == 4 ? lane * 4u : lane % 16 * 8u, 0};
}

/// The table of a codebook, by all threads of a CTA, which must synchronize before they use it.
template <class Decoder>
__device__ Table fill_table(const WeightArguments& weights, uint32_t* shared) {
  const int lane = threadIdx.x % kLanes;
  Table table = {shared_address(shared), lane * 4u, 0};
  if constexpr (Decoder::kHasTable) {
    for (int i = threadIdx.x; i < Decoder::kPairs * kLanes; i += blockDim.x) {
      const int index = i / kLanes;
      shared[i] = weights.codebook[Decoder::low_code(index)] |
                  uint32_t{weights.codebook[Decoder::high_code(index)]} << 16;
    }
    if constexpr (Decoder::kPairs == 0) table.value = weights.codebook[lane];
  }
  return table;
}

/// The scale block of a tile.
template <class Decoder, int kGroups>
__device__ __forceinline__ int scale_block_of(const WeightArguments& w, int tile) {
  if constexpr (HasSuperblocks<Decoder>) return tile / kSuperblockTiles;
  if (kGroups > 1 || w.blocks_per_tile == 0) return tile;
  return static_cast<int>(__umulhi(tile, w.blocks_per_tile));
}

// --- epilogue ---

template <class Number>
__device__ __forceinline__ float load_number(const void* p, int64_t i) {
  return Number::to_float(static_cast<const uint16_t*>(p)[i]);
}

template <class Number>
__device__ __forceinline__ void store_number(void* p, int64_t i, float value) {
  static_cast<uint16_t*>(p)[i] = static_cast<uint16_t>(Number::splat_float(value));
}

/// The other type of 16 bits.
template <class Number>
struct OtherOf {
  using Type = F16;
};
template <>
struct OtherOf<F16> {
  using Type = BF16;
};

/// A result of the type that was asked for.
template <class Number>
__device__ __forceinline__ void store_result(const LinearArguments& a, int64_t i, float value) {
  if (a.y_is_other) return store_number<typename OtherOf<Number>::Type>(a.y, i, value);
  store_number<Number>(a.y, i, value);
}

__device__ __forceinline__ float gated(Activation activation, const SwiGLU& swiglu, float gate,
                                       float up) {
  if (activation == Activation::kClampedSwiGLU) {
    gate = gate > swiglu.limit ? swiglu.limit : gate;  // NaN stays
    up = up > swiglu.limit ? swiglu.limit : up < -swiglu.limit ? -swiglu.limit : up;
    return gate / (1.0f + expf(-swiglu.alpha * gate)) * (up + swiglu.up_offset);
  }
  if (activation == Activation::kGeGLU) {  // 1 + tanh(z) = 2 / (1 + exp(-2z))
    const float twice = 1.5957691216f * gate * fmaf(0.044715f * gate, gate, 1.0f);
    return gate / (1.0f + expf(-twice)) * up;
  }
  return gate / (1.0f + expf(-gate)) * up;
}

__device__ __forceinline__ float activated(Unary unary, float value) {
  if (unary == Unary::kRelu) return value < 0 ? 0 : value;  // NaN stays
  if (unary == Unary::kGelu) return gated(Activation::kGeGLU, {}, value, 1.0f);
  return value;
}

/// Stores the sums of rows `row` and `row` + 8 of a strip, of one token.
template <class Number>
__device__ __forceinline__ void finish(const LinearArguments& a, int strip, int row, int64_t token,
                                       float low, float high) {
  const WeightArguments& w = a.weights;
  const int64_t n0 = source_row(w.row_order, strip, row, w.rows);
  const int64_t n1 = source_row(w.row_order, strip, row + 8, w.rows);
  low *= w.gain;
  high *= w.up_gain;
  if (a.bias != nullptr) {
    if (n0 < w.rows) low += load_number<Number>(a.bias, n0);
    if (n1 < w.rows) high += load_number<Number>(a.bias, n1);
  }
  if (a.activation != Activation::kNone) {
    const int64_t hidden = strip * int64_t{8} + row;
    if (hidden >= w.rows / 2) return;
    float value = gated(a.activation, a.swiglu, low, high);
    if (a.residual != nullptr) {
      value += load_number<Number>(a.residual, token * a.residual_stride + hidden);
    }
    store_result<Number>(a, token * a.y_stride + hidden, value);
    return;
  }
  low = activated(a.unary, low);
  high = activated(a.unary, high);
  if (a.residual != nullptr) {
    const int64_t at = token * a.residual_stride;
    if (n0 < w.rows) low += load_number<Number>(a.residual, at + n0);
    if (n1 < w.rows) high += load_number<Number>(a.residual, at + n1);
  }
  if (n0 < w.rows) store_result<Number>(a, token * a.y_stride + n0, low);
  if (n1 < w.rows) store_result<Number>(a, token * a.y_stride + n1, high);
}

/// Eight neighbours at once, 16 bytes.
template <class Number>
__device__ __forceinline__ void store_numbers(void* p, int64_t i, const float* values) {
  uint4 v;
  v.x = Number::pack_x2(values[0], values[1]);
  v.y = Number::pack_x2(values[2], values[3]);
  v.z = Number::pack_x2(values[4], values[5]);
  v.w = Number::pack_x2(values[6], values[7]);
  *reinterpret_cast<uint4*>(static_cast<uint16_t*>(p) + i) = v;
}
template <class Number>
__device__ __forceinline__ void add_numbers(const void* p, int64_t i, float* values) {
  const uint4 v = *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(p) + i);
  const uint32_t pairs[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    values[j] += Number::to_float(static_cast<uint16_t>(pairs[j / 2] >> 16 * (j % 2)));
  }
}

/// Nothing is done to the results of a strip, all are in the matrix, side by side, and are of the
/// type of the inputs.
__device__ __forceinline__ bool is_plain(const LinearArguments& a, int strip) {
  return a.weights.row_order == RowOrder::kNatural && a.residual == nullptr && a.bias == nullptr &&
         a.unary == Unary::kNone && !a.y_is_other && (strip + 1) * kStripRows <= a.weights.rows;
}

/// Rows of a strip are whole vectors of 16 bytes in the bias, in the residual and in y, and all are
/// in the matrix.
__device__ __forceinline__ bool is_whole(const LinearArguments& a, int strip) {
  const bool is_gated = a.activation != Activation::kNone;
  const bool in_order = is_gated || a.weights.row_order == RowOrder::kNatural;
  const int64_t outputs = is_gated ? a.weights.rows / 2 : a.weights.rows;
  const int64_t end = (strip + int64_t{1}) * (is_gated ? kStripRows / 2 : kStripRows);
  const uint64_t places = reinterpret_cast<uintptr_t>(a.y) |
                          reinterpret_cast<uintptr_t>(a.residual) |
                          reinterpret_cast<uintptr_t>(a.bias);
  const int64_t strides = a.y_stride | (a.residual != nullptr ? a.residual_stride : 0) |
                          (a.bias != nullptr ? outputs : 0);
  return in_order && end <= outputs && places % 16 == 0 && strides % 8 == 0;
}

template <class Number>
__device__ __forceinline__ void add_bias(const LinearArguments& a, int strip,
                                         float (&values)[kStripRows]) {
  if (a.weights.row_order == RowOrder::kGateAboveUp) {
    add_numbers<Number>(a.bias, strip * int64_t{8}, values);
    add_numbers<Number>(a.bias, a.weights.rows / 2 + strip * int64_t{8}, values + 8);
    return;
  }
  float bias[kStripRows] = {};
  add_numbers<Number>(a.bias, strip * int64_t{kStripRows}, bias);
  add_numbers<Number>(a.bias, strip * int64_t{kStripRows} + 8, bias + 8);
  const bool in_pairs = a.weights.row_order == RowOrder::kGateUpPairs;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    values[i] += in_pairs ? bias[2 * i] : bias[i];
    values[i + 8] += in_pairs ? bias[2 * i + 1] : bias[i + 8];
  }
}

/// Stores eight outputs, of which the first is `first`.
template <class Number>
__device__ __forceinline__ void store_outputs(const LinearArguments& a, int64_t token,
                                              int64_t first, float* values) {
  if (a.residual != nullptr) {
    add_numbers<Number>(a.residual, token * a.residual_stride + first, values);
  }
  if (a.y_is_other) {
    store_numbers<typename OtherOf<Number>::Type>(a.y, token * a.y_stride + first, values);
  } else {
    store_numbers<Number>(a.y, token * a.y_stride + first, values);
  }
}

/// The same as finish() for all rows of a strip that is_whole(), in registers.
template <class Number>
__device__ __forceinline__ void finish_whole(const LinearArguments& a, int strip, int64_t token,
                                             float (&values)[kStripRows]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    values[i] *= a.weights.gain;
    values[i + 8] *= a.weights.up_gain;
  }
  if (a.bias != nullptr) add_bias<Number>(a, strip, values);
  if (a.activation == Activation::kNone) {
    if (a.unary == Unary::kRelu) {
#pragma unroll
      for (int i = 0; i < kStripRows; ++i) values[i] = activated(Unary::kRelu, values[i]);
    } else if (a.unary == Unary::kGelu) {
#pragma unroll
      for (int i = 0; i < kStripRows; ++i) values[i] = activated(Unary::kGelu, values[i]);
    }
    store_outputs<Number>(a, token, strip * int64_t{kStripRows}, values);
    store_outputs<Number>(a, token, strip * int64_t{kStripRows} + 8, values + 8);
    return;
  }
  if (a.activation == Activation::kSwiGLU) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      values[i] = gated(Activation::kSwiGLU, a.swiglu, values[i], values[i + 8]);
    }
  } else if (a.activation == Activation::kGeGLU) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      values[i] = gated(Activation::kGeGLU, a.swiglu, values[i], values[i + 8]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      values[i] = gated(Activation::kClampedSwiGLU, a.swiglu, values[i], values[i + 8]);
    }
  }
  store_outputs<Number>(a, token, strip * int64_t{8}, values);
}

/// Stores the sums of a strip, of one token, one by one.
template <class Number>
__device__ __noinline__ void finish_one_by_one(const LinearArguments& a, int strip, int64_t token,
                                               const float* values) {
  for (int i = 0; i < kStripRows / 2; ++i) {
    finish<Number>(a, strip, i, token, values[i], values[i + 8]);
  }
}

/// Stores the sums of a strip, of one token.
template <class Number>
__device__ __forceinline__ void finish_strip(const LinearArguments& a, int strip, int64_t token,
                                             float (&values)[kStripRows]) {
  if (is_whole(a, strip)) return finish_whole<Number>(a, strip, token, values);
  float copy[kStripRows];  // whose address is taken, while `values` stay in registers
#pragma unroll
  for (int i = 0; i < kStripRows; ++i) copy[i] = values[i];
  finish_one_by_one<Number>(a, strip, token, copy);
}

}  // namespace subbyte::cuda
