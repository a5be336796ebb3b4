#pragma once
// A gated delta net of one token inside a step: a CTA for a value head, as delta_net_token.cu has
// one beside launches.
//
//   warps 0 to 3     the query's convolution, 4 to 7 the key's, 8 to 11 the value's and the gate of
//                    the result
//   warps 0 to 7     sixteen columns of the state, in two parts
//
// The state, what the convolution kept, and weights are loaded before projections are waited for.

#include "kernels/cuda/delta_net/delta_net_token.cuh"
#include "kernels/cuda/step/clock.cuh"
#include "kernels/cuda/step/exchange.cuh"
#include "kernels/cuda/step/program.h"

namespace subbyte::cuda {

template <class Number, class Clock>
class StepDelta {
 public:
  __device__ StepDelta(const StepProgram& p, const StepDeltaNet& d, uint8_t* shared, Clock& clock)
      : d_(d),
        a_(d.net),
        clock_(clock),
        part_(*reinterpret_cast<const StatePart*>(shared + p.shared.state)),
        token_(*reinterpret_cast<Token*>(shared + p.shared.x)),
        value_head_(static_cast<int>(blockIdx.x)),
        warp_(static_cast<int>(threadIdx.x) / kLanes),
        lane_(static_cast<int>(threadIdx.x) % kLanes),
        kind_(static_cast<int>(threadIdx.x) / kSize),
        at_(static_cast<int>(threadIdx.x) % kSize) {}

  /// Calls leave_last() between two barriers: then all threads have left the operation before.
  template <class LeaveLast>
  __device__ __forceinline__ void run(const LeaveLast& leave_last) {
    if (value_head_ >= a_.sizes.value_heads) {
      step_sync();
      leave_last();
      return step_sync();
    }
    const int first = warp_ * 2 * kWarpColumns;
    Columns columns[2] = {{sizes(), first}, {sizes(), first + kWarpColumns}};
    load_states(columns);
    load_channel();
    take_channel();
    clock_.at(StepPhase::kStaged);
    step_sync();
    clock_.at(StepPhase::kMultiplies);
    leave_last();
    if (warp_ == 0) normalise_key(a_, token_.q, query_length(a_.sizes));
    if (warp_ == 1) normalise_key(a_, token_.k, 1);
    if (warp_ == kGateWarp) find_gates();
    step_sync();
    step_states(columns);
    clock_.at(StepPhase::kMultiplied);
    step_sync();
    clock_.at(StepPhase::kAdds);
    if (warp_ < kSize / kLanes) store_number_of_head();
    step_sync();  // before the scratch is used again
    clock_.at(StepPhase::kEnds);
  }

 private:
  static constexpr int kSize = kStepDeltaHead;
  static constexpr int kStateWarps = kSize / (2 * kWarpColumns);
  static constexpr int kGateWarp = 2;
  static_assert(3 * kSize == kStepThreads && kStateWarps <= kStepWarps);
  using Columns = StateColumns<kSize / kKeyLanes>;

  /// In shared memory: as TokenOfHead, of heads of kSize numbers.
  struct Token {
    float q[kSize], k[kSize];
    float v[kSize];  // then what the state gives
    float gates[kSize];
    DeltaGates of_state;
  };

  /// Those of heads are known to the compiler.
  __device__ DeltaNetSizes sizes() const {
    DeltaNetSizes sizes = a_.sizes;
    sizes.key_size = sizes.value_size = kSize;
    return sizes;
  }
  __device__ float* matrix(int32_t state) const {
    return a_.states + matrix_at(a_, state, value_head_);
  }

  __device__ __forceinline__ void load_states(Columns (&columns)[2]) const {
    const bool is_there = warp_ < kStateWarps && part_.from >= 0;
#pragma unroll
    for (Columns& some : columns) {
      some.clear();
      if (is_there) some.load_whole(matrix(part_.from));
    }
  }

  /// What does not depend on other CTAs.
  __device__ __forceinline__ void load_channel() {
    const int head = value_head_ / a_.sizes.values_per_key;
    const HeadPlace place = kind_ == 0   ? queries_of(a_, head)
                            : kind_ == 1 ? keys_of(a_, head)
                                         : values_of(a_, value_head_);
    column_ = place.column + at_;
    channel_ = place.channel + at_;
    const int channels = channels_of(a_.sizes);
    const float* const kept = a_.states + part_.from * a_.state_stride + channel_;
#pragma unroll
    for (int tap = 0; tap < kUsualTaps; ++tap) {
      filters_[tap] = a_.filters[tap * channels + channel_];
      if (tap + 1 < kUsualTaps) x_[tap] = part_.from >= 0 ? kept[tap * channels] : 0;
    }
    if (kind_ == 2) norm_ = a_.norm[at_];
    if (warp_ == kGateWarp) rate_ = a_.rates[value_head_], dt_bias_ = a_.dt_bias[value_head_];
  }

  /// The channel's last input, which goes to the new state; with it a number of z.
  __device__ __forceinline__ void take_channel() {
    const auto* const words = static_cast<const uint32_t*>(d_.qkvz.data);
    const uint32_t* const z = words + value_column(a_, a_.z, value_head_) + at_;
    uint32_t own;
    uint32_t gate = d_.qkvz.tag;
    do {
      own = ld_relaxed(words + column_);
      if (kind_ == 2) gate = ld_relaxed(z);
    } while (!__all_sync(~0u, (((own ^ d_.qkvz.tag) | (gate ^ d_.qkvz.tag)) & kTagMask) == 0));
    clock_.at(StepPhase::kThere);
    x_[kUsualTaps - 1] = untagged(own);
    const bool keeps = kind_ == 2 || value_head_ % a_.sizes.values_per_key == 0;
    const int channels = channels_of(a_.sizes);
    float* const kept = a_.states + part_.to * a_.state_stride + channel_;
    float sum = 0;
#pragma unroll
    for (int tap = 0; tap < kUsualTaps; ++tap) {
      sum = fmaf(filters_[tap], x_[tap], sum);
      if (keeps && tap > 0) kept[(tap - 1) * channels] = x_[tap];
    }
    float* const to = kind_ == 0 ? token_.q : kind_ == 1 ? token_.k : token_.v;
    to[at_] = silu(sum);
    if (kind_ == 2) token_.gates[at_] = norm_ * silu(untagged(gate));
  }

  __device__ __forceinline__ void find_gates() {
    const int2 columns = gate_columns(a_, value_head_);
    const auto* const words = static_cast<const uint32_t*>(d_.ba.data);
    uint32_t b;
    uint32_t a;
    do {
      b = ld_relaxed(words + columns.x);
      a = ld_relaxed(words + columns.y);
    } while ((((b ^ d_.ba.tag) | (a ^ d_.ba.tag)) & kTagMask) != 0);
    const float2 logs = log_gates(untagged(b), untagged(a), rate_, dt_bias_);
    if (lane_ == 0) token_.of_state = {expf(logs.x), logs.y};
  }

  __device__ __forceinline__ void step_states(Columns (&columns)[2]) {
    if (warp_ >= kStateWarps) return;
#pragma unroll
    for (Columns& some : columns) {
      // Read and written by the lanes of the column alone.
      float* const v = token_.v + some.col();
      const float2 given =
          some.step(token_.q, token_.k, *reinterpret_cast<const float2*>(v), token_.of_state);
      some.store_whole(matrix(part_.to));
      __syncwarp();
      if (some.is_first_lane()) *reinterpret_cast<float2*>(v) = given;
    }
  }

  /// Four warps, each of which adds the squares of all numbers.
  __device__ __forceinline__ void store_number_of_head() const {
    float squares = 0;
#pragma unroll
    for (int j = 0; j < kSize; j += kLanes) {
      const float given = token_.v[j + lane_];
      squares = fmaf(given, given, squares);
    }
    const float mean = sum_of_warp(squares) / kSize;
    const float factor = 1.0f / sqrtf(mean + a_.norm_eps);
    const int own = warp_ * kLanes + lane_;
    const float value = token_.v[own] * factor * token_.gates[own];
    const int64_t at = int64_t{result_place(a_.sizes, value_head_)} * kSize + own;
    store_tagged(d_.result, 0, at, value);  // which others wait for
    store_number<Number>(a_.y, at, value);
  }

  const StepDeltaNet& d_;
  const DeltaNetCall& a_;
  Clock& clock_;
  const StatePart& part_;
  Token& token_;
  const int value_head_, warp_, lane_;
  const int kind_, at_;  // of the thread's channel
  int column_ = 0, channel_ = 0;
  float filters_[kUsualTaps] = {};
  float x_[kUsualTaps] = {};
  float norm_ = 0, rate_ = 0, dt_bias_ = 0;
};

}  // namespace subbyte::cuda
