#pragma once
// A head of queries or keys whose halves turn, in lanes of a warp that have eight elements each.

#include "kernels/cuda/common/elements.cuh"

namespace subbyte::cuda {

/// Four neighbours of a head, and those that turn with them, half a head further.
struct Quarters {
  float low[4];
  float high[4];

  __device__ static void load_4(Element element, const void* from, int64_t at, float (&to)[4]) {
    if (element == Element::kF32) {
      const float4 v = *reinterpret_cast<const float4*>(static_cast<const float*>(from) + at);
      to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
      return;
    }
    const uint2 v = *reinterpret_cast<const uint2*>(static_cast<const uint16_t*>(from) + at);
    to[0] = to_float(element, static_cast<uint16_t>(v.x));
    to[1] = to_float(element, static_cast<uint16_t>(v.x >> 16));
    to[2] = to_float(element, static_cast<uint16_t>(v.y));
    to[3] = to_float(element, static_cast<uint16_t>(v.y >> 16));
  }
  __device__ void load(Element element, const void* from, int64_t at, int half) {
    load_4(element, from, at, low);
    load_4(element, from, at + half, high);
  }
  /// Of 16 bits.
  __device__ void store(Element element, void* to, int64_t at, int half) const {
    auto* const numbers = static_cast<uint16_t*>(to) + at;
    *reinterpret_cast<uint2*>(numbers) = {pack_x2(element, low[0], low[1]),
                                          pack_x2(element, low[2], low[3])};
    *reinterpret_cast<uint2*>(numbers + half) = {pack_x2(element, high[0], high[1]),
                                                 pack_x2(element, high[2], high[3])};
  }
};

/// How the heads of a row are normalised and turned.
struct HeadTurns {
  const float* norm;  // [kDim] or nullptr
  float eps;
  const float* cos;  // [kDim / 2]
  const float* sin;
};

/// Normalises and turns the head of kDim / 8 neighbouring lanes; `turns` is false for values, which
/// stay. All lanes of a warp come here.
template <int kDim>
__device__ void normalise_and_turn(Quarters& x, bool turns, const HeadTurns& by) {
  constexpr int kLanesOfHead = kDim / 8;
  const int element = static_cast<int>(threadIdx.x) % kLanesOfHead * 4;
  float cos[4] = {1, 1, 1, 1};
  float sin[4] = {};
  Quarters weights = {};
  const bool has_norm = turns && by.norm != nullptr;
  if (turns) {
    Quarters::load_4(Element::kF32, by.cos, element, cos);
    Quarters::load_4(Element::kF32, by.sin, element, sin);
  }
  if (has_norm) weights.load(Element::kF32, by.norm, element, kDim / 2);
  double squares = 0;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    squares +=
        static_cast<double>(x.low[j]) * x.low[j] + static_cast<double>(x.high[j]) * x.high[j];
  }
#pragma unroll
  for (int distance = kLanesOfHead / 2; distance > 0; distance /= 2) {
    squares += __shfl_xor_sync(~0u, squares, distance);
  }
  if (!turns) return;
  const float factor = 1.0f / sqrtf(static_cast<float>(squares / kDim) + by.eps);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float low = has_norm ? x.low[j] * (factor * weights.low[j]) : x.low[j];
    const float high = has_norm ? x.high[j] * (factor * weights.high[j]) : x.high[j];
    x.low[j] = fmaf(-high, sin[j], low * cos[j]);
    x.high[j] = fmaf(low, sin[j], high * cos[j]);
  }
}

}  // namespace subbyte::cuda
