#pragma once
// Experts inside a step: the logits of a router, and the choice, which every CTA makes for itself
// from all logits, by the same instructions. Its producers wait for it, and then bring the weights
// of the chosen ones.

#include "kernels/cuda/experts/choose.cuh"
#include "kernels/cuda/step/clock.cuh"
#include "kernels/cuda/step/exchange.cuh"
#include "kernels/cuda/step/program.h"

namespace subbyte::cuda {

/// Tagged floats to shared memory, by a warp, four of each lane on their way at once.
__device__ inline void wait_for_floats(const StepInput& from, int count, float* to) {
  constexpr int kAtOnce = 4;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const auto* const words = static_cast<const uint32_t*>(from.data);
#pragma unroll 1
  for (int first = lane; first < count; first += kAtOnce * kLanes) {
    uint32_t word[kAtOnce];
    bool there;
    do {
      there = true;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int at = first + i * kLanes;
        word[i] = at < count ? ld_relaxed(words + at) : from.tag;
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) there &= (word[i] & kTagMask) == from.tag;
    } while (!there);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i * kLanes < count) to[first + i * kLanes] = untagged(word[i]);
    }
  }
  __syncwarp();
}

/// By a warp: the experts of this layer, in `chosen`, which logits of all follow. `barrier` is
/// where producers wait for it.
static __device__ __noinline__ void choose_for_cta(const StepExperts& experts,
                                                   ChosenExperts* chosen, uint32_t barrier) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  auto* const logits = reinterpret_cast<float*>(chosen + 1);
  wait_for_floats(experts.logits, static_cast<int>(experts.choice.experts), logits);
  const ChosenExpert mine = choose_experts(experts.choice, logits);
  const bool has_one = lane < static_cast<int>(experts.choice.top_k);
  if (has_one) chosen->expert[lane] = mine.expert;
  __syncwarp();
  if (lane == 0) mbarrier_arrive(barrier);
  if (!has_one) return;
  chosen->gain[lane] = experts.gains[mine.expert];
  chosen->up_gain[lane] = experts.up_gains[mine.expert];
  chosen->factor[lane] = mine.weight * experts.down_gains[mine.expert];
}

/// A router, by all threads: pairs of inputs stay in the registers of a thread for all rows of the
/// CTA. Inputs are normalised, of which the factor of the whole row is left to the sums.
class StepRoute {
 public:
  __device__ StepRoute(const StepRouter& r, uint8_t* scratch)
      : r_(r),
        sums_(reinterpret_cast<float*>(scratch)),
        warp_(static_cast<int>(threadIdx.x) / kLanes),
        lane_(static_cast<int>(threadIdx.x) % kLanes),
        rows_(rows_of_cta(r)) {}

  /// Calls leave_last() between two barriers: then all threads have left the operation before.
  template <class Clock, class LeaveLast>
  __device__ __forceinline__ void run(Clock& clock, const LeaveLast& leave_last) {
    if (rows_ > 0) multiply(clock);
    clock.at(StepPhase::kMultiplied);
    step_sync();
    clock.at(StepPhase::kAdds);
    leave_last();
    if (warp_ < rows_) add(warp_);
    step_sync();  // before the scratch is used again
    clock.at(StepPhase::kEnds);
  }

 private:
  static __device__ int rows_of_cta(const StepRouter& r) {
    const int first = static_cast<int>(blockIdx.x);
    const int ctas = static_cast<int>(gridDim.x);
    return first < r.rows ? (r.rows - 1 - first) / ctas + 1 : 0;
  }
  __device__ int row(int i) const {
    return static_cast<int>(blockIdx.x) + i * static_cast<int>(gridDim.x);
  }
  /// The first input of a pair of this thread.
  __device__ int col(int pair) const {
    return 2 * (pair * kStepThreads + static_cast<int>(threadIdx.x));
  }

  template <class Clock>
  __device__ __forceinline__ void multiply(Clock& clock) {
    uint2 weights[kRouterPairs];
    float2 x[kRouterPairs];
    fetch(0, weights);
#pragma unroll
    for (int p = 0; p < kRouterPairs; ++p) {
      const bool there = col(p) < r_.cols;
      x[p] = there ? *reinterpret_cast<const float2*>(r_.norm + col(p)) : float2{};
    }
    const float squares = take_inputs(x);
    clock.at(StepPhase::kStaged);
    put(rows_, squares);
#pragma unroll 1
    for (int i = 0; i < rows_; ++i) {
      float sum = 0;
#pragma unroll
      for (int p = 0; p < kRouterPairs; ++p) {
        const float2 pair = floats_of(weights[p]);
        sum = fmaf(pair.x, x[p].x, sum);
        sum = fmaf(pair.y, x[p].y, sum);
      }
      if (i + 1 < rows_) fetch(i + 1, weights);
      put(i, sum);
    }
  }

  /// Pairs as they are stored: in two words, or both numbers in the first.
  __device__ void fetch(int i, uint2 (&weights)[kRouterPairs]) const {
    const int64_t first = int64_t{row(i)} * r_.cols;
    const bool is_f32 = r_.element == Element::kF32;
#pragma unroll
    for (int p = 0; p < kRouterPairs; ++p) {
      const int64_t pair = (first + col(p)) / 2;
      weights[p] = {};
      if (col(p) >= r_.cols) continue;
      if (is_f32) {
        weights[p] = static_cast<const uint2*>(r_.weights)[pair];
      } else {
        weights[p].x = static_cast<const uint32_t*>(r_.weights)[pair];
      }
    }
  }

  __device__ float2 floats_of(uint2 pair) const {
    if (r_.element == Element::kF32) return {__uint_as_float(pair.x), __uint_as_float(pair.y)};
    return {to_float(r_.element, static_cast<uint16_t>(pair.x)),
            to_float(r_.element, static_cast<uint16_t>(pair.x >> 16))};
  }

  /// Weights of the norm become inputs times them; returns this thread's squares of inputs.
  __device__ float take_inputs(float2 (&x)[kRouterPairs]) const {
    const bool is_tagged = r_.x.kind == StepInput::Kind::kTagged;
    const uint32_t mask = is_tagged ? ~kTagMask : ~0u;
    const auto* const words = static_cast<const uint32_t*>(r_.x.data);
    uint2 word[kRouterPairs];
    bool there;
    do {
      there = true;
#pragma unroll
      for (int p = 0; p < kRouterPairs; ++p) {
        word[p] = col(p) < r_.cols ? ld_relaxed_x2(words + col(p)) : uint2{r_.x.tag, r_.x.tag};
      }
#pragma unroll
      for (int p = 0; p < kRouterPairs; ++p) {
        const uint32_t wrong = (word[p].x ^ r_.x.tag) | (word[p].y ^ r_.x.tag);
        there &= !is_tagged || (wrong & kTagMask) == 0;
      }
    } while (!__all_sync(~0u, there));
    float squares = 0;
#pragma unroll
    for (int p = 0; p < kRouterPairs; ++p) {
      if (col(p) >= r_.cols) continue;
      const float first = __uint_as_float(word[p].x & mask);
      const float second = __uint_as_float(word[p].y & mask);
      squares = fmaf(first, first, fmaf(second, second, squares));
      x[p].x *= first;
      x[p].y *= second;
    }
    return squares;
  }

  /// Leaves the sum of this warp.
  __device__ void put(int i, float of_lane) const {
    const float sum = sum_of_warp(of_lane);
    if (lane_ == 0) sums_[i * kStepWarps + warp_] = sum;
  }
  __device__ float sum_of_cta(int i) const {
    return sum_of_warp(lane_ < kStepWarps ? sums_[i * kStepWarps + lane_] : 0);
  }

  __device__ void add(int i) const {
    const float factor = rsqrtf(fmaf(sum_of_cta(rows_), r_.per_col, r_.eps));
    const float bias = r_.bias != nullptr ? r_.bias[row(i)] : 0;
    const float logit = fmaf(sum_of_cta(i), factor, bias);
    if (lane_ == 0) store_tagged(r_.result, 0, row(i), logit);
  }

  const StepRouter& r_;
  float* const sums_;  // [rows, then the squares of inputs][kStepWarps]
  const int warp_;
  const int lane_;
  const int rows_;
};

}  // namespace subbyte::cuda
