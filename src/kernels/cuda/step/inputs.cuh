#pragma once
// The inputs of a product on their way to shared memory. Every CTA does it for itself: a warp loads
// a unit of 256 inputs, eight a lane, and waits until all are there; multiplies them by the weights
// of the norm; finds the power of two of each input group; and stores them as the product needs
// them (integer_dot.cuh, float_dot.cuh), with the sums of the inputs of each quantization group.
//
//   lane (t = lane % 4, s = lane / 4)   inputs 2t, 2t + 1, 8 + 2t, 9 + 2t of the steps 2 s, 2 s + 1
//
// The norm divides by the root of the mean of all squares. That is a factor of the whole row, so it
// is left to the results; what each warp has of the squares is kept for it.
//
// This is on the way from every operation to the next, and it takes what its instructions take:
// there is one copy of the code for a unit, and fields of the operation that it needs are in
// registers.

#include "kernels/cuda/common/elements.cuh"
#include "kernels/cuda/common/pair_mma.cuh"
#include "kernels/cuda/step/clock.cuh"
#include "kernels/cuda/step/exchange.cuh"
#include "kernels/cuda/step/program.h"

namespace subbyte::cuda {

/// Inputs of a lane in twos, first those of the even step: as they are, or as tagged floats.
struct EightInputs {
  uint2 twos[4];
};

/// The first of a lane's inputs in a unit; twos are 8 apart.
__device__ __forceinline__ int first_input(int lane) {
  return lane / 4 * 2 * kStepCols + lane % 4 * 2;
}

/// The element of a row that a column multiplies; -1: it is after the last one.
__device__ __forceinline__ int64_t input_of(const WeightArguments& w, int col) {
  if (col >= w.cols) return -1;
  return w.gather != nullptr ? w.gather[col] : col;
}

/// At any address, in any order; numbers, too.
template <class Number>
__device__ __noinline__ EightInputs load_one_by_one(const StepInput& from, const WeightArguments& w,
                                                    int token, int first_col) {
  uint32_t words[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int64_t input = input_of(w, first_col + i / 2 * 8 + i % 2);
    words[i] = from.tag;
    if (input < 0) continue;
    const int64_t at = token * from.stride + input;
    if (from.kind == StepInput::Kind::kNumbers) {
      words[i] =
          __float_as_uint(Number::to_float(__ldcg(static_cast<const uint16_t*>(from.data) + at)));
    } else {
      words[i] = ld_relaxed(static_cast<const uint32_t*>(from.data) + at);
    }
  }
  return {{{words[0], words[1]}, {words[2], words[3]}, {words[4], words[5]}, {words[6], words[7]}}};
}

static __device__ __noinline__ EightInputs load_norm_one_by_one(const float* norm,
                                                                const WeightArguments& w,
                                                                int first_col) {
  uint32_t words[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int64_t input = input_of(w, first_col + i / 2 * 8 + i % 2);
    words[i] = input < 0 ? 0 : __float_as_uint(norm[input]);
  }
  return {{{words[0], words[1]}, {words[2], words[3]}, {words[4], words[5]}, {words[6], words[7]}}};
}

/// All threads of a CTA; they synchronise before they use the inputs.
template <class Number, class Dot>
class StepInputs {
 public:
  /// `parity` of the number of the operation: others may still need the squares of the one before.
  __device__ StepInputs(const StepProgram& p, const StepProduct& product,
                        const StepWeights& weights, uint8_t* shared, int parity)
      : p_(p),
        product_(product),
        is_tagged_(product.x.kind == StepInput::Kind::kTagged),
        in_twos_(product.x.in_twos != 0 && product.x.kind != StepInput::Kind::kNumbers),
        has_norm_(product.norm != nullptr),
        tag_(product.x.tag),
        m_(p.m),
        units_(weights.units),
        warp_(static_cast<int>(threadIdx.x) / kLanes),
        lane_(static_cast<int>(threadIdx.x) % kLanes),
        cols_left_(product.weights.cols - first_input(lane_)),
        x_(static_cast<const uint32_t*>(product.x.data) + first_input(lane_)),
        norm_weights_(product.norm + first_input(lane_)),
        x_stride_(product.x.stride),
        shared_(shared),
        all_squares_(reinterpret_cast<float*>(shared + p.shared.x_squares) +
                     parity * p.m * kStepWarps) {}

  /// What does not depend on other CTAs.
  __device__ void begin() {
    Cursor at = {0, warp_};
    norm_ = load_norm(at);
    advance(at);
    next_norm_ = load_norm(at);
  }

  template <class Clock>
  __device__ void load(Clock& clock) {
    Cursor at = {0, warp_};
    if (at.unit >= units_) return;
    // Most wait for the slowest CTA. A quarter of the first unit looks for it, then comes the rest.
    EightInputs x;
    do {
      x = load_twos(at, 0, 1);
    } while (!are_there(x, 0, 1));
    clock.at(StepPhase::kThere);
    const EightInputs rest = load_twos(at, 1, 4);
    Cursor ahead = at;
    advance(ahead);
    EightInputs next = load_twos(ahead, 0, 4);
#pragma unroll
    for (int i = 1; i < 4; ++i) x.twos[i] = rest.twos[i];
#pragma unroll 1
    while (true) {
      while (!are_there(x, 0, 4)) x = load_twos(at, 0, 4);
      stage(at, x);
      advance(at);
      if (at.token >= m_) break;
      advance(ahead);
      x = next;
      norm_ = next_norm_;
      next = load_twos(ahead, 0, 4);
      next_norm_ = load_norm(ahead);
    }
  }

  /// After the barrier: leaves what this warp has of the squares of the last token.
  __device__ void put_squares() const {
    if (has_norm_ && warp_ < units_) put_squares(m_ - 1);
  }

  /// What the results of token `token` are multiplied by. By all lanes, after one more barrier.
  __device__ float factor(int token) const {
    if (!has_norm_) return 1;
    const float of_warp =
        lane_ < min(units_, kStepWarps) ? all_squares_[token * kStepWarps + lane_] : 0;
    return rsqrtf(fmaf(sum_of_warp(of_warp), product_.per_col, product_.eps));
  }

 private:
  /// A unit of a token; those of a warp come one after the other.
  struct Cursor {
    int token;
    int unit;
  };
  __device__ void advance(Cursor& at) const {
    at.unit += kStepWarps;
    if (at.unit < units_) return;
    at.unit = warp_;
    ++at.token;
  }

  // --- loads. After the last column and the last token come zeros, which are always there.

  __device__ EightInputs load_twos(const Cursor& at, int begin, int end) const {
    EightInputs x = {{{tag_, tag_}, {tag_, tag_}, {tag_, tag_}, {tag_, tag_}}};
    if (at.token >= m_) return x;
    if (!in_twos_) {
      return load_one_by_one<Number>(product_.x, product_.weights, at.token,
                                     at.unit * kUnitCols + first_input(lane_));
    }
    const uint32_t* const from = x_ + at.token * x_stride_ + at.unit * kUnitCols;
    const int left = cols_left_ - at.unit * kUnitCols;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i >= begin && i < end && left > 8 * i) x.twos[i] = ld_relaxed_x2(from + 8 * i);
    }
    return x;
  }

  __device__ EightInputs load_norm(const Cursor& at) const {
    EightInputs norm = {};
    if (!has_norm_ || at.token >= m_ || at.unit >= units_) return norm;
    if (!in_twos_) {
      return load_norm_one_by_one(product_.norm, product_.weights,
                                  at.unit * kUnitCols + first_input(lane_));
    }
    const float* const from = norm_weights_ + at.unit * kUnitCols;
    const int left = cols_left_ - at.unit * kUnitCols;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (left > 8 * i) norm.twos[i] = *reinterpret_cast<const uint2*>(from + 8 * i);
    }
    return norm;
  }

  /// Of all lanes.
  __device__ bool are_there(const EightInputs& x, int begin, int end) const {
    uint32_t wrong = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i >= begin && i < end) wrong |= (x.twos[i].x ^ tag_) | (x.twos[i].y ^ tag_);
    }
    return __all_sync(~0u, !is_tagged_ || (wrong & kTagMask) == 0);
  }

  // --- a unit

  __device__ void stage(const Cursor& at, const EightInputs& x) {
    const auto [token, unit] = at;
    const uint32_t mask = is_tagged_ ? ~kTagMask : ~0u;
    float v[8];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      v[2 * i] = __uint_as_float(x.twos[i].x & mask);
      v[2 * i + 1] = __uint_as_float(x.twos[i].y & mask);
    }
    if (has_norm_) {
#pragma unroll
      for (int i = 0; i < 8; ++i) squares_ = fmaf(v[i], v[i], squares_);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        v[2 * i] *= __uint_as_float(norm_.twos[i].x);
        v[2 * i + 1] *= __uint_as_float(norm_.twos[i].y);
      }
      if (m_ > 1 && token + 1 < m_ && unit + kStepWarps >= units_) {
        put_squares(token);
        squares_ = 0;
      }
    }
    const uint32_t exponent = exponent_of_group(v);
    constexpr uint32_t kNotANumber = 254;  // nor what has no reciprocal
    if (lane_ % kGroupLanes == 0) {
      // NaN and infinity are left to the results: their scale is NaN.
      const uint32_t scale = exponent < kNotANumber ? (exponent - Dot::kTop) << 23 : 0x7fc00000u;
      const int group = unit * (kUnitCols / kInputGroup) + lane_ / kGroupLanes;
      *float_at(p_.shared.x_scales + Dot::place(token, group, p_.shared.x_scales_stride)) =
          __uint_as_float(scale);
    }
    const float to_unit = __uint_as_float((254 + Dot::kTop - exponent) << 23);
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] *= to_unit;
    const uint32_t row = shared_address(shared_) + p_.shared.x + token * p_.shared.x_stride;
    const auto sums = Dot::put(row, p_.shared.x_stride, unit, lane_, v);
    if constexpr (Dot::kSumGroups > 0) put_sums(token, unit, sums);
  }

  static constexpr int kGroupLanes = kInputGroup / 8;

  /// Of the largest of an input group, at least so large that its power of two has a reciprocal.
  static __device__ uint32_t exponent_of_group(const float (&v)[8]) {
    constexpr uint32_t kMagnitude = 0x7fffffff;
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) largest = max(largest, __float_as_uint(v[i]) & kMagnitude);
#pragma unroll
    for (int distance = 1; distance < kGroupLanes; distance *= 2) {
      largest = max(largest, __shfl_xor_sync(~0u, largest, distance));
    }
    return max(largest >> 23, Dot::kTop + 1u);
  }

  /// `of_steps`: of a lane's inputs in its two steps.
  template <class Sums>
  __device__ void put_sums(int token, int unit, Sums of_steps) const {
    constexpr int kOfTile = Dot::kSumGroups;  // 1, 2 or 4 quantization groups
    constexpr int kLanesOfSum = kOfTile == 1 ? 8 : 4;
    auto first = kOfTile == 4 ? of_steps.x : of_steps.x + of_steps.y;
    auto second = of_steps.y;
#pragma unroll
    for (int distance = 1; distance < kLanesOfSum; distance *= 2) {
      first += __shfl_xor_sync(~0u, first, distance);
      if constexpr (kOfTile == 4) second += __shfl_xor_sync(~0u, second, distance);
    }
    if (lane_ % kLanesOfSum != 0) return;
    const int index = unit * kUnitTiles * kOfTile + lane_ / kLanesOfSum * (kOfTile == 4 ? 2 : 1);
    const auto put = [&](int i, auto sum) {
      *reinterpret_cast<decltype(sum)*>(
          float_at(p_.shared.x_sums + Dot::place(token, index + i, p_.shared.x_sums_stride))) = sum;
    };
    put(0, first);
    if constexpr (kOfTile == 4) put(1, second);
  }

  __device__ void put_squares(int token) const {
    const float squares = sum_of_warp(squares_);
    if (lane_ == 0) all_squares_[token * kStepWarps + warp_] = squares;
  }

  __device__ float* float_at(int offset) const {
    return reinterpret_cast<float*>(shared_ + offset);
  }

  const StepProgram& p_;
  const StepProduct& product_;
  const bool is_tagged_;
  const bool in_twos_;
  const bool has_norm_;
  const uint32_t tag_;
  const int m_;
  const int units_;  // of a row
  const int warp_;
  const int lane_;
  const int cols_left_;  // from this lane's first input on
  const uint32_t* const x_;
  const float* const norm_weights_;
  const int64_t x_stride_;
  uint8_t* const shared_;
  float* const all_squares_;  // [m][kStepWarps]
  float squares_ = 0;         // of a token, in this lane
  EightInputs norm_ = {};
  EightInputs next_norm_ = {};
};

}  // namespace subbyte::cuda
