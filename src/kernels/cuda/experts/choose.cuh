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

/// A number so that unsigned comparison is that of floats: NaN, which has no order, counts as
/// infinity, and both zeros are one. 0 is below all.
__device__ inline uint32_t rank_of(float number) {
  const uint32_t bits = __float_as_uint(isnan(number) ? INFINITY : number + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

/// What rank_of() was given, but for infinity, which may have been NaN.
__device__ inline float number_of(uint32_t rank) {
  return __uint_as_float((rank & 0x80000000u) != 0 ? rank & 0x7fffffffu : ~rank);
}

__device__ inline float sigmoid(float x) {
  return 1 / (1 + expf(-x));
}

/// What the experts of a token are compared by, and their scores. By a warp.
class ExpertNumbers {
 public:
  static constexpr int kAtOnce = 4;  // ranks of a lane, whose code is long

  __device__ ExpertNumbers(const ExpertChoice& route, const float* logits)
      : logits_(logits),
        biases_(route.biases),
        rule_(route.rule),
        experts_(static_cast<int>(route.experts)),
        by_logits_(rule_.chooses_by_logits(biases_ != nullptr)) {
    const bool is_softmax = rule_.scores == Routing::Scores::kSoftmax;
    if (is_softmax && !(by_logits_ && rule_.has_ratios())) find_total();
    if (rule_.groups > 1) find_groups();
  }

  __device__ int experts() const { return experts_; }

  /// 0 of an expert that is not there to choose.
  __device__ uint32_t rank(int expert) const {
    const bool is_there =
        expert < experts_ && (rule_.groups == 1 || (kept_groups_ >> expert / group_size_ & 1) != 0);
    return is_there ? rank_of(number(expert)) : 0;
  }

  /// Of an expert with that rank: a logit that is a number is not loaded again.
  __device__ float logit(int expert, uint32_t rank) const {
    const float number = number_of(rank);
    return by_logits_ && !isinf(number) ? number : logits_[expert];
  }

  /// Of a logit; with ratios alone of a softmax it is relative to the largest of the chosen ones,
  /// `best`.
  __device__ float score(float logit, float best) const {
    if (rule_.scores == Routing::Scores::kSigmoid) return sigmoid(logit);
    return total_ == 0 ? expf(logit - best) : expf(logit - largest_) / total_;
  }

 private:
  __device__ float number(int expert) const {
    const float logit = logits_[expert];
    if (by_logits_) return logit;
    // As score(), by one exponential and one division for both kinds.
    const bool is_sigmoid = rule_.scores == Routing::Scores::kSigmoid;
    const float power = expf(is_sigmoid ? -logit : logit - largest_);
    const float score = (is_sigmoid ? 1 : power) / (is_sigmoid ? 1 + power : total_);
    return score + (biases_ != nullptr ? biases_[expert] : 0);
  }

  /// By which a softmax divides.
  __device__ void find_total() {
    const int lane = static_cast<int>(threadIdx.x) % kLanes;
    uint32_t largest = 0;
    for (int e = lane; e < experts_; e += kLanes) largest = max(largest, rank_of(logits_[e]));
    largest_ = number_of(__reduce_max_sync(~0u, largest));
    float sum = 0;
    for (int e = lane; e < experts_; e += kLanes) sum += expf(logits_[e] - largest_);
    total_ = sum_of_warp(sum);
  }

  /// A lane has a group, and counts those that are better.
  __device__ void find_groups() {
    const int lane = static_cast<int>(threadIdx.x) % kLanes;
    const int size = experts_ / rule_.groups;
    group_size_ = size;
    float best = -INFINITY;
    float second = -INFINITY;
    for (int i = 0; i < size && lane < rule_.groups; ++i) {
      const float found = number(lane * size + i);
      const float one = isnan(found) ? INFINITY : found;
      second = fmaxf(second, fminf(best, one));
      best = fmaxf(best, one);
    }
    const uint32_t rank = rank_of(rule_.groups_by_two && size > 1 ? best + second : best);
    int better = 0;
    for (int other = 0; other < rule_.groups; ++other) {
      const uint32_t of_other = __shfl_sync(~0u, rank, other);
      better += of_other > rank || (of_other == rank && other < lane);
    }
    kept_groups_ = __ballot_sync(~0u, lane < rule_.groups && better < rule_.top_groups);
  }

  const float* logits_;
  const float* biases_;
  const Routing& rule_;
  int experts_;
  bool by_logits_;
  float largest_ = 0;  // of the logits
  float total_ = 0;    // of a softmax, if it is needed
  unsigned kept_groups_ = 0;
  int group_size_ = 1;
};

/// The same where nothing but logits decides (is_usual()), in few instructions: a warp waits until
/// each of them is fetched.
class ExpertLogits {
 public:
  static constexpr int kAtOnce = 8;

  __device__ ExpertLogits(const ExpertChoice& route, const float* logits)
      : logits_(logits), experts_(static_cast<int>(route.experts)) {}

  __device__ int experts() const { return experts_; }
  __device__ uint32_t rank(int expert) const {
    return expert < experts_ ? rank_of(logits_[expert]) : 0;
  }
  __device__ float logit(int expert, uint32_t rank) const {
    const float number = number_of(rank);
    return isinf(number) ? logits_[expert] : number;
  }
  __device__ float score(float logit, float best) const { return expf(logit - best); }

 private:
  const float* logits_;
  int experts_;
};

/// Experts that a warp has in registers where only logits decide.
constexpr int64_t kUsualExperts = 8 * kLanes;

/// Says whether the weights are a softmax of the chosen logits, and nothing beside that.
__host__ __device__ inline bool is_usual(const ExpertChoice& a) {
  return a.rule.scores == Routing::Scores::kSoftmax && a.rule.has_ratios() && a.rule.groups == 1 &&
         a.biases == nullptr && a.factors == nullptr && a.experts <= kUsualExperts;
}

/// An expert among those of a token.
struct RankedExpert {
  uint32_t rank;
  int expert;
};

/// The experts that a warp has not chosen yet. Lane l has those from l on, kLanes apart; the ranks
/// of `held` of them stay in its registers, a multiple of kAtOnce, at most kMost. If these are
/// kMost, others may follow, which are found again.
template <int kMost, class Numbers>
class LeftExperts {
 public:
  __device__ LeftExperts(const Numbers& numbers, int held)
      : numbers_(numbers), lane_(static_cast<int>(threadIdx.x) % kLanes) {
    constexpr int kKept = kMost - Numbers::kAtOnce;
#pragma unroll 1
    for (int first = 0; first < held; first += Numbers::kAtOnce) {
#pragma unroll
      for (int i = 0; i < kMost; ++i) {  // the last `held` at the end
        held_[i] = i < kKept ? held_[i + Numbers::kAtOnce]
                             : numbers.rank((first + i - kKept) * kLanes + lane_);
      }
    }
  }

  /// The best expert of those that are left, top_k <= 32 times: each lane has one of them. kHeld:
  /// `held`.
  template <int kHeld>
  __device__ RankedExpert best(int top_k) {
    RankedExpert mine = {0, 0};
    for (int i = 0; i < top_k; ++i) {
      take<kHeld>();
      if (lane_ == i) mine = last_;
    }
    return mine;
  }

 private:
  /// The best, the lower index on ties. All lanes have it.
  template <int kHeld>
  __device__ void take() {
    RankedExpert best = best_held<kHeld>();
    if constexpr (kHeld == kMost) take_other(best);
    const uint32_t rank = __reduce_max_sync(~0u, best.rank);
    const auto mine = static_cast<unsigned>(best.rank == rank ? best.expert : INT_MAX);
    last_ = {rank, static_cast<int>(__reduce_min_sync(~0u, mine))};
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (i * kLanes + lane_ == last_.expert) held_[kMost - kHeld + i] = 0;
    }
  }

  /// One that no register holds, if it is better.
  __device__ void take_other(RankedExpert& best) const {
#pragma unroll 1
    for (int e = kMost * kLanes + lane_; e < numbers_.experts(); e += kLanes) {
      const uint32_t rank = numbers_.rank(e);
      const bool is_left = rank < last_.rank || (rank == last_.rank && e > last_.expert);
      if (is_left && rank > best.rank) best = {rank, e};
    }
  }

  /// In a tree, whose left side wins ties.
  template <int kHeld>
  __device__ RankedExpert best_held() const {
    RankedExpert best[kHeld];
#pragma unroll
    for (int i = 0; i < kHeld; ++i) best[i] = {held_[kMost - kHeld + i], i * kLanes + lane_};
#pragma unroll
    for (int level = 0; (1 << level) < kHeld; ++level) {
#pragma unroll
      for (int i = 0; i < kHeld; i += 2 << level) {
        const RankedExpert& right = best[i + (1 << level)];
        if (right.rank > best[i].rank) best[i] = right;
      }
    }
    return best[0];
  }

  const Numbers& numbers_;
  int lane_;
  uint32_t held_[kMost] = {};
  RankedExpert last_ = {~0u, -1};
};

/// By a warp, of the best experts.
template <class Numbers>
__device__ ChosenExpert with_weight(const ExpertChoice& a, const Numbers& numbers,
                                    RankedExpert mine) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int top_k = static_cast<int>(a.top_k);
  const float logit = lane < top_k ? numbers.logit(mine.expert, mine.rank) : 0;
  const float weight = numbers.score(logit, __shfl_sync(~0u, logit, 0));
  double divisor = 1;
  if (a.rule.normalises) {
    double sum = 0;
#pragma unroll 4
    for (int i = 0; i < top_k; ++i) sum += __shfl_sync(~0u, weight, i);
    sum += a.rule.added;
    divisor = sum < a.rule.smallest_sum ? a.rule.smallest_sum : sum;
  }
  ChosenExpert chosen = {mine.expert, static_cast<float>(weight / divisor) * a.rule.factor};
  if (a.factors != nullptr && lane < top_k) chosen.weight *= a.factors[mine.expert];
  return chosen;
}

/// By a warp: the top_k best experts, NaN before all, and their weights.
__device__ inline ChosenExpert choose_experts(const ExpertChoice& a, const float* logits) {
  const ExpertNumbers numbers(a, logits);
  const int top_k = static_cast<int>(a.top_k);
  const int held = a.experts <= 4 * kLanes ? 4 : a.experts <= 8 * kLanes ? 8 : 16;
  LeftExperts<16, ExpertNumbers> left(numbers, held);
  return with_weight(a, numbers,
                     held == 4   ? left.best<4>(top_k)
                     : held == 8 ? left.best<8>(top_k)
                                 : left.best<16>(top_k));
}

/// The same where is_usual().
__device__ inline ChosenExpert choose_usual_experts(const ExpertChoice& a, const float* logits) {
  constexpr int kHeld = kUsualExperts / kLanes;
  const ExpertLogits numbers(a, logits);
  LeftExperts<kHeld, ExpertLogits> left(numbers, kHeld);
  return with_weight(a, numbers, left.best<kHeld>(static_cast<int>(a.top_k)));
}

/// By a warp, what it has chosen for a token, whose shared expert, if there is one, has this gate.
/// Each lane that has a route returns its expert.
__device__ inline int store_choice(const RouteCall& a, int64_t token, ChosenExpert chosen,
                                   float gate) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  if (lane >= a.routes_of_token()) return 0;
  if (lane == a.top_k) {
    chosen = {static_cast<int>(a.experts), a.shared_gate != nullptr ? sigmoid(gate) : 1};
  }
  const int64_t route = token * a.routes_of_token() + lane;
  a.expert_of[route] = chosen.expert;
  a.weights[route] = a.of_inputs != nullptr ? 1 : chosen.weight;
  if (a.of_inputs != nullptr) a.of_inputs[route] = chosen.weight;
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
