#pragma once
// Experts inside a step: the logits of a router, and the choice, which every CTA makes for itself
// from all logits, by the same instructions. Its producers wait for it, and then bring the weights
// of the chosen ones.

#include "kernels/cuda/experts/choose.cuh"
#include "kernels/cuda/step/clock.cuh"
#include "kernels/cuda/step/exchange.cuh"
#include "kernels/cuda/step/program.h"

namespace subbyte::cuda {

/// Tagged floats to shared memory, by a warp, kAtOnce of each lane on their way at once.
template <int kAtOnce>
__device__ void wait_for_floats(const StepInput& from, int count, float* to) {
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
/// where producers wait for it. kIsFull: see StepProgram.
template <bool kIsFull>
__device__ __noinline__ void choose_for_cta(const StepExperts& experts, ChosenExperts* chosen,
                                            uint32_t barrier) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  auto* const logits = reinterpret_cast<float*>(chosen + 1);
  const int count = static_cast<int>(experts.choice.experts);
  // Of 256 experts and a gate all at once.
  wait_for_floats<kIsFull ? 9 : 4>(experts.logits, count + (kIsFull ? experts.has_gate : 0),
                                   logits);
  const ChosenExpert mine = choose_experts(experts.choice, logits);
  const SharedExpert& shared = experts.shared;
  const bool has_one = lane < static_cast<int>(experts.choice.top_k);
  const bool has_shared =
      kIsFull && shared.number >= 0 && lane == static_cast<int>(experts.choice.top_k);
  if (has_one) chosen->expert[lane] = mine.expert;
  if (has_shared) chosen->expert[lane] = shared.number;
  __syncwarp();
  if (lane == 0) mbarrier_arrive(barrier);
  if (has_one) {
    chosen->gain[lane] = experts.gains[mine.expert];
    chosen->up_gain[lane] = experts.up_gains[mine.expert];
    chosen->factor[lane] = mine.weight * experts.down_gains[mine.expert];
  } else if (has_shared) {
    const float weight = experts.has_gate != 0 ? sigmoid(logits[count]) : 1;
    chosen->gain[lane] = shared.gain;
    chosen->up_gain[lane] = shared.up_gain;
    chosen->factor[lane] = weight * experts.shared_down_gain;
  }
}

/// Dense rows, by all threads: pairs of inputs stay in the registers of a thread for all rows of
/// the CTA. Inputs are normalised, of which the factor of the whole row is left to the sums.
template <bool kIsFull>
class StepRoute {
 public:
  __device__ StepRoute(const StepRouter& r, uint8_t* scratch)
      : r_(r),
        sums_(reinterpret_cast<float*>(scratch)),
        warp_(static_cast<int>(threadIdx.x) / kLanes),
        lane_(static_cast<int>(threadIdx.x) % kLanes),
        first_row_(row_of_cta(r)),
        rows_(rows_of_cta(r, first_row_)) {}

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
  static __device__ int row_of_cta(const StepRouter& r) {
    if constexpr (!kIsFull) return static_cast<int>(blockIdx.x);
    const int first = static_cast<int>(blockIdx.x) - r.first_cta;
    return first < 0 ? first + static_cast<int>(gridDim.x) : first;
  }
  static __device__ int rows_of_cta(const StepRouter& r, int first) {
    return first < r.rows ? (r.rows - 1 - first) / static_cast<int>(gridDim.x) + 1 : 0;
  }
  __device__ int row(int i) const { return first_row_ + i * static_cast<int>(gridDim.x); }
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
    for (int i = 1; kIsFull && i < rows_; ++i) prefetch(i);
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

  /// Where the weights of a row begin.
  __device__ const std::byte* weights_of(int i) const {
    if (kIsFull && r_.last != nullptr && row(i) == r_.rows - 1)
      return static_cast<const std::byte*>(r_.last);
    return static_cast<const std::byte*>(r_.weights) +
           int64_t{row(i)} * r_.cols * (r_.element == Element::kF32 ? 4 : 2);
  }

  /// Has a row that comes later brought to the L2 cache, while inputs are waited for.
  __device__ void prefetch(int i) const {
    const std::byte* const weights = weights_of(i);
#pragma unroll
    for (int p = 0; p < kRouterPairs; ++p) {
      if (col(p) >= r_.cols) continue;
      const std::byte* const at = weights + col(p) * (r_.element == Element::kF32 ? 4 : 2);
      asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
    }
  }

  /// Pairs as they are stored: in two words, or both numbers in the first.
  __device__ void fetch(int i, uint2 (&weights)[kRouterPairs]) const {
    const std::byte* const matrix = weights_of(i);
    const bool is_f32 = r_.element == Element::kF32;
#pragma unroll
    for (int p = 0; p < kRouterPairs; ++p) {
      const int pair = col(p) / 2;
      weights[p] = {};
      if (col(p) >= r_.cols) continue;
      if (is_f32) {
        weights[p] = reinterpret_cast<const uint2*>(matrix)[pair];
      } else {
        weights[p].x = reinterpret_cast<const uint32_t*>(matrix)[pair];
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
  const int first_row_;  // of this CTA
  const int rows_;
};

}  // namespace subbyte::cuda
