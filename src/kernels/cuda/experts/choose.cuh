#pragma once
// How a warp chooses the experts of a token, which choose() of route.cu and router.cu have in
// common.

#include <climits>

#include "kernels/cuda/common/elements.cuh"
#include "kernels/cuda/experts/route.h"

namespace subbyte::cuda {

/// Of a lane: the expert that is so good as its number says, and its weight.
struct ChosenExpert {
  int expert;
  float weight;
};

/// A logit so that unsigned comparison is that of floats: NaN, which has no order, counts as
/// infinity, and both zeros are one. 0 is below all.
__device__ inline uint32_t rank_of(float logit) {
  const uint32_t bits = __float_as_uint(isnan(logit) ? INFINITY : logit + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

/// What rank_of() was given; infinity, which may have been NaN, is loaded again.
__device__ inline float logit_of(const float* logits, uint32_t rank, int expert) {
  const float logit = __uint_as_float((rank & 0x80000000u) != 0 ? rank & 0x7fffffffu : ~rank);
  return isinf(logit) ? logits[expert] : logit;
}

/// By a warp.
__device__ inline float softmax_sum(const float* logits, int experts, float largest) {
  float sum = 0;
  for (int e = static_cast<int>(threadIdx.x) % kLanes; e < experts; e += kLanes) {
    sum += expf(logits[e] - largest);
  }
  return sum_of_warp(sum);
}

/// The experts that a warp has not chosen yet. Lane l has those from l on, kLanes apart; the ranks
/// of kHeld of them stay in its registers, the others are read again.
template <int kHeld>
class LeftExperts {
 public:
  __device__ LeftExperts(const float* logits, int experts)
      : logits_(logits), experts_(experts), lane_(static_cast<int>(threadIdx.x) % kLanes) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int expert = i * kLanes + lane_;
      held_[i] = expert < experts ? rank_of(logits[expert]) : 0;
    }
  }

  /// The best, the lower index on ties. All lanes have the rank and the expert.
  __device__ int take(uint32_t& rank) {
    Best best = best_held();
    for (int e = kHeld * kLanes + lane_; e < experts_; e += kLanes) {
      const uint32_t other = rank_of(logits_[e]);
      const bool is_left = other < last_.rank || (other == last_.rank && e > last_.expert);
      if (is_left && other > best.rank) best = {other, e};
    }
    rank = __reduce_max_sync(~0u, best.rank);
    const auto mine = static_cast<unsigned>(best.rank == rank ? best.expert : INT_MAX);
    const int expert = static_cast<int>(__reduce_min_sync(~0u, mine));
    last_ = {rank, expert};
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (i * kLanes + lane_ == expert) held_[i] = 0;
    }
    return expert;
  }

 private:
  struct Best {
    uint32_t rank;
    int expert;
  };

  /// In a tree, whose left side wins ties.
  __device__ Best best_held() const {
    Best best[kHeld];
#pragma unroll
    for (int i = 0; i < kHeld; ++i) best[i] = {held_[i], i * kLanes + lane_};
#pragma unroll
    for (int level = 0; (1 << level) < kHeld; ++level) {
#pragma unroll
      for (int i = 0; i < kHeld; i += 2 << level) {
        const Best& right = best[i + (1 << level)];
        if (right.rank > best[i].rank) best[i] = right;
      }
    }
    return best[0];
  }

  const float* logits_;
  int experts_;
  int lane_;
  uint32_t held_[kHeld];
  Best last_ = {~0u, -1};
};

/// By a warp: the best expert of those that are left, top_k <= 32 times, NaN before all.
template <int kHeld>
__device__ ChosenExpert choose_experts(const float* logits, int experts, int top_k,
                                       bool weights_of_all) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  LeftExperts<kHeld> left(logits, experts);
  uint32_t my_rank = 0;
  int mine = 0;
  for (int i = 0; i < top_k; ++i) {
    uint32_t rank = 0;
    const int expert = left.take(rank);
    if (lane == i) my_rank = rank, mine = expert;
  }
  const float logit = lane < top_k ? logit_of(logits, my_rank, mine) : 0;
  const float largest = __shfl_sync(~0u, logit, 0);
  const float weight = expf(logit - largest);
  double sum = 0;
  if (weights_of_all) {
    sum = softmax_sum(logits, experts, largest);
  } else {
#pragma unroll 4
    for (int i = 0; i < top_k; ++i) sum += __shfl_sync(~0u, weight, i);
  }
  return {mine, static_cast<float>(weight / sum)};
}

__device__ inline ChosenExpert choose_experts(const float* logits, int experts, int top_k,
                                              bool weights_of_all) {
  constexpr int kFew = 4;
  if (experts <= kFew * kLanes) {
    return choose_experts<kFew>(logits, experts, top_k, weights_of_all);
  }
  if (experts <= 2 * kFew * kLanes) {
    return choose_experts<2 * kFew>(logits, experts, top_k, weights_of_all);
  }
  return choose_experts<4 * kFew>(logits, experts, top_k, weights_of_all);
}

/// By a warp, what it has chosen for a token, whose shared expert, if there is one, has this gate.
/// Each lane that has a route returns its expert.
__device__ inline int store_choice(const RouteCall& a, int64_t token, ChosenExpert chosen,
                                   float gate) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  if (lane >= a.routes_of_token()) return 0;
  if (lane == a.top_k) chosen = {static_cast<int>(a.experts), 1 / (1 + expf(-gate))};
  a.expert_of[token * a.routes_of_token() + lane] = chosen.expert;
  a.weights[token * a.routes_of_token() + lane] = chosen.weight;
  return chosen.expert;
}

/// By a warp: the order and the tiles of one token, all of whose experts differ, each in its lane.
__device__ inline void sort_of_one_token(const RouteCall& a, int expert) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int routes = static_cast<int>(a.routes_of_token());
  int place = 0;
#pragma unroll 4
  for (int other = 0; other < routes; ++other) {
    place += __shfl_sync(~0u, expert, other) < expert;
  }
  if (lane < routes) {
    a.order[place] = lane;
    a.token_of[place] = 0;
    a.tiles[place] = {expert, place, 1};
  }
  for (int64_t i = routes + lane; i < a.num_tiles; i += kLanes) a.tiles[i] = {};
}

}  // namespace subbyte::cuda
