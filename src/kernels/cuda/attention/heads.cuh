#pragma once
// A head of queries or keys in the registers of a warp: its norm and its rotary positions.

#include "kernels/cuda/common/elements.cuh"

namespace subbyte::cuda {

/// Pairs of elements of a head, kPairs of them for each lane.
template <int kPairs>
struct HeadOfLaneOf {
  float low[kPairs];
  float high[kPairs];
};

inline constexpr int kHeadPairs = 4;  // heads of 256 elements
using HeadOfLane = HeadOfLaneOf<kHeadPairs>;

/// The pairs: elements i and i + turning of the first 2 * turning, which turn together, or 2 i and
/// 2 i + 1 of them; then pairs of the others, which stay.
struct HeadPairs {
  int half;     // pairs
  int turning;  // of them; half: all
  bool are_neighbours = false;

  __device__ int low(int i) const {
    if (i < turning) return are_neighbours ? 2 * i : i;
    return i + turning;
  }
  __device__ int high(int i) const {
    if (i < turning) return are_neighbours ? 2 * i + 1 : i + turning;
    return i + half;
  }
};

template <int kPairs = kHeadPairs>
__device__ HeadOfLaneOf<kPairs> load_head(Element element, const void* from, int64_t at,
                                          const HeadPairs& pairs) {
  HeadOfLaneOf<kPairs> head = {};
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const int i = j * kLanes + static_cast<int>(threadIdx.x) % kLanes;
    if (i >= pairs.half) continue;
    head.low[j] = load_element(element, from, at + pairs.low(i));
    head.high[j] = load_element(element, from, at + pairs.high(i));
  }
  return head;
}

template <int kPairs>
__device__ void store_head(Element element, void* to, int64_t at, const HeadPairs& pairs,
                           const HeadOfLaneOf<kPairs>& head) {
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const int i = j * kLanes + static_cast<int>(threadIdx.x) % kLanes;
    if (i >= pairs.half) continue;
    store_element(element, to, at + pairs.low(i), head.low[j]);
    store_element(element, to, at + pairs.high(i), head.high[j]);
  }
}

template <int kPairs>
__device__ void normalise(HeadOfLaneOf<kPairs>& head, const HeadOfLaneOf<kPairs>& weight, float eps,
                          int half) {
  double squares = 0;
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    squares += static_cast<double>(head.low[j]) * head.low[j] +
               static_cast<double>(head.high[j]) * head.high[j];
  }
  const float mean = static_cast<float>(sum_of_warp(squares) / (2 * half));
  const float factor = 1.0f / sqrtf(mean + eps);
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    head.low[j] *= factor * weight.low[j];
    head.high[j] *= factor * weight.high[j];
  }
}

template <int kPairs>
__device__ void turn(HeadOfLaneOf<kPairs>& head, const HeadOfLaneOf<kPairs>& angle) {
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const float low = head.low[j];
    const float high = head.high[j];
    head.low[j] = fmaf(-high, angle.high[j], low * angle.low[j]);
    head.high[j] = fmaf(low, angle.high[j], high * angle.low[j]);
  }
}

/// Cosines and sines of a row, for the pairs that turn; 1 and 0 for the others.
template <int kPairs = kHeadPairs>
__device__ HeadOfLaneOf<kPairs> load_angles(const float* cos, const float* sin, int64_t row,
                                            const HeadPairs& pairs) {
  HeadOfLaneOf<kPairs> angle = {};
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const int i = j * kLanes + static_cast<int>(threadIdx.x) % kLanes;
    angle.low[j] = i < pairs.turning ? cos[row * pairs.turning + i] : 1.0f;
    angle.high[j] = i < pairs.turning ? sin[row * pairs.turning + i] : 0.0f;
  }
  return angle;
}

}  // namespace subbyte::cuda
