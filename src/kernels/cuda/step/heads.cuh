#pragma once
// A head of q, k or v in the lanes of a warp, as soon as another CTA has computed it.

#include "kernels/cuda/attention/heads.cuh"
#include "kernels/cuda/common/prologue_epilogue.cuh"
#include "kernels/cuda/step/exchange.cuh"
#include "kernels/cuda/step/program.h"

namespace subbyte::cuda {

/// The pairs of the head at element `at`, when all of it is there.
template <class Number, int kPairs>
__device__ HeadOfLaneOf<kPairs> wait_for_head(const StepInput& from, int64_t at,
                                              const HeadPairs& pairs) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const bool is_tagged = from.kind == StepInput::Kind::kTagged;
  HeadOfLaneOf<kPairs> x = {};
  bool there;
  do {
    there = true;
#pragma unroll
    for (int i = 0; i < 2 * kPairs; ++i) {
      const int element = i / 2 * kLanes + lane;
      if (element >= pairs.half) continue;
      float& to = i % 2 == 0 ? x.low[i / 2] : x.high[i / 2];
      const int64_t place = at + (i % 2 == 0 ? pairs.low(element) : pairs.high(element));
      if (is_tagged) {
        const uint32_t word = ld_relaxed(static_cast<const uint32_t*>(from.data) + place);
        there &= (word & kTagMask) == from.tag;
        to = untagged(word);
      } else {
        to = Number::to_float(__ldcg(static_cast<const uint16_t*>(from.data) + place));
      }
    }
  } while (!__all_sync(~0u, there));
  return x;
}

/// As normalise() of ops/heads.cuh, in float32.
template <int kPairs>
__device__ void normalise_head(HeadOfLaneOf<kPairs>& x, const HeadOfLaneOf<kPairs>& weights,
                               int half, float eps) {
  float squares = 0;
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    squares += fmaf(x.low[j], x.low[j], x.high[j] * x.high[j]);
  }
  const float mean = sum_of_warp(squares) / static_cast<float>(2 * half);
  const float factor = 1.0f / sqrtf(mean + eps);
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    x.low[j] *= factor * weights.low[j];
    x.high[j] *= factor * weights.high[j];
  }
}

}  // namespace subbyte::cuda
