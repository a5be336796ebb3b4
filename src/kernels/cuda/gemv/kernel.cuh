#pragma once
// Up to eight tokens: each warp keeps its inputs in registers and lets the weights pass by.
//
//   block b of `groups`   has strips [b S / groups, (b + 1) S / groups); where there are more than
//                         eight tokens, neighbours do the same for others
//   warp w of 16          has segments w, w + 16, ... of 256 inputs of all those strips:
//
//                inputs ->
//     strip 0    [ warp 0 | warp 1 | ... | warp 15 | warp 0 | ... ]
//     strip 1    [ warp 0 | warp 1 | ... | warp 15 | warp 0 | ... ]
//
// So activations are loaded once, into registers, by the warp that needs them, and nobody waits for
// anybody until the end, when the sums of all segments of a strip, which lie in shared memory, are
// added in their order. If they do not fit for all strips, this is done for a batch of strips at a
// time. Compared with small_m there is less to compute before the first weights and for
// each of them; but a block has whole strips, so their number should divide well.
//
// The first weights are asked for before the kernel waits for the one that writes its activations.

#include <cstdint>

#include "kernels/cuda/common/pair_mma.cuh"
#include "kernels/cuda/common/prologue_epilogue.cuh"
#include "kernels/cuda/gemv/partition.h"
#include "kernels/cuda/gemv/weight_stream.cuh"

namespace subbyte::cuda {

/// A block at work. Every warp has one, with its own way through the weights.
template <class Number, class Decoder, int kGroups>
class GemvBlock {
 public:
  using Stream = StripStream<Decoder, kGroups>;
  using Reader = PairReader<Decoder, kGroups>;

  __device__ GemvBlock(const LinearArguments& a, const GemvPartition& p, uint8_t* shared)
      : a_(a),
        p_(p),
        shared_(shared),
        warp_(__shfl_sync(~0u, threadIdx.x / kLanes, 0)),  // so the compiler knows it is uniform
        lane_(threadIdx.x % kLanes),
        group_(p.token_tiles == 1 ? blockIdx.x : blockIdx.x / p.token_tiles),
        first_strip_(p.strips.begin(group_)),
        strips_(p.strips.size(group_)),
        token0_((blockIdx.x - group_ * p.token_tiles) * kGemvTokens),
        tokens_(min(kGemvTokens, a.m - token0_)),
        stream_(a.weights, p, shared_address(shared) + p.shared.rings + warp_ * p.ring_bytes,
                lane_),
        reader_(a.weights, shared_address(shared) + p.shared.scale_values, lane_) {}

  __device__ void run() {
    // First the inputs: behind the weights of all warps they would wait for a microsecond.
    if (!a_.is_dependent) copy_first_inputs();
    commit_copies();
    ahead_segment_ = warp_;
    begin_ahead();
#pragma unroll 1
    for (int i = 0; i < kGemvDepth; ++i) {
      load_next();
      stream_.next_slot_to_fill();
    }
    stream_.fill_zeros(reader_);
    prepare_shared();
    if (a_.is_dependent) {
      wait_for_previous_kernel();
      copy_first_inputs();
      commit_copies();
      wait_copies<0>();
    } else {
      wait_copies<kGemvDepth>();
    }
    for (int begin = 0; begin < strips_; begin += p_.batch) {
      const int strips = min(p_.batch, strips_ - begin);
      if (kGroups == 1 && p_.one_group) {
        multiply_batch<kGroups == 1>(begin, strips);
      } else {
        multiply_batch<false>(begin, strips);
      }
      __syncthreads();
      add_segments(begin, strips);
      if (begin + p_.batch < strips_) __syncthreads();  // before the sums are overwritten
    }
    wait_copies<0>();
  }

 private:
  __device__ void begin_ahead() {
    ahead_left_ = ahead_segment_ < p_.segments ? min(p_.batch, strips_ - ahead_strip_) : 0;
    if (ahead_left_ > 0) stream_.begin_copies(first_strip_ + ahead_strip_, ahead_segment_);
  }
  __device__ void load_next() {
    if (ahead_left_ > 0) {
      stream_.load();
      if (--ahead_left_ == 0) {
        ahead_segment_ += kGemvWarps;
        if (ahead_segment_ >= p_.segments) {
          ahead_segment_ = warp_;
          ahead_strip_ += p_.batch;
        }
        begin_ahead();
      }
    }
    commit_copies();
  }

  /// Tables, which all warps read.
  __device__ void prepare_shared() {
    const WeightArguments& w = a_.weights;
    fill_scale_values(reinterpret_cast<float*>(shared_ + p_.shared.scale_values), w.scale);
    table_ = fill_table<Decoder>(w, reinterpret_cast<uint32_t*>(shared_));
    if (Decoder::kHasTable || w.scale.bytes == 1) __syncthreads();
  }

  /// Of the inputs of one of this warp's segments, in shared memory.
  __device__ uint8_t* inputs(int segment) const {
    const int buffer = warp_ * p_.x_buffers + (p_.x_buffers == 1 ? 0 : segment / kGemvWarps);
    return shared_ + p_.shared.x + buffer * min(a_.m, kGemvTokens) * kGemvInputStride;
  }

  __device__ void copy_first_inputs() {
    const int end = p_.x_buffers == 1 ? warp_ + 1 : p_.segments;
#pragma unroll 1
    for (int segment = warp_; segment < end; segment += kGemvWarps) copy_inputs(segment);
  }

  /// Starts to copy a segment of activations, if they can be copied.
  __device__ void copy_inputs(int segment) {
    if (!a_.is_aligned || segment >= p_.segments) return;
    const int col = segment * kSegmentCols + lane_ * 8;
    const bool there = col < a_.weights.cols;
    const uint16_t* x = static_cast<const uint16_t*>(a_.x) + int64_t{token0_} * a_.x_stride;
    const uint32_t to = shared_address(inputs(segment)) + lane_ * 16;
#pragma unroll 1
    for (int i = 0; i < tokens_; ++i) {
      copy_async_or_zero<16>(to + i * kGemvInputStride, there ? x + i * a_.x_stride + col : x,
                             there);
    }
  }

  /// Loads them one by one.
  __device__ void gather_inputs(int segment) {
    const WeightArguments& w = a_.weights;
    const uint16_t* x = static_cast<const uint16_t*>(a_.x) + int64_t{token0_} * a_.x_stride;
#pragma unroll 1
    for (int i = 0; i < tokens_; ++i) {
#pragma unroll
      for (int j = 0; j < kSegmentCols; j += kLanes) {
        const int col = segment * kSegmentCols + j + lane_;
        uint16_t value = 0;
        if (col < w.cols) value = x[i * a_.x_stride + (w.gather != nullptr ? w.gather[col] : col)];
        reinterpret_cast<uint16_t*>(inputs(segment) + i * kGemvInputStride)[j + lane_] = value;
      }
    }
  }

  /// Brings a segment of activations, which have been copied, to registers, and makes their sums.
  __device__ void hold_inputs(int segment) {
    if (!a_.is_aligned) gather_inputs(segment);
    __syncwarp();
    // Tokens that are not there have results that nobody stores.
    const uint32_t row = shared_address(inputs(segment)) +
                         min(lane_ % 8, tokens_ - 1) * kGemvInputStride + lane_ / 8 * 16;
#pragma unroll
    for (int i = 0; i < kHalves; ++i) load_matrices(x_[i], row + i * 2 * kStepCols * 2);
    if constexpr (Decoder::kHasZeros) {
      if (kGroups == 1 && p_.one_group) {
        sum_groups<2 * kSteps>();
      } else {
        sum_groups<kSteps / kGroups>();
      }
    }
    __syncwarp();
    held_ = segment;
  }

  /// Sums of the inputs of each group, or of each pair: products with ones.
  template <int kGroupSteps>
  __device__ void sum_groups() {
    const uint32_t one = Number::pair_of_float(1);
    const uint32_t ones[4] = {one, one, one, one};
    float* const to = sums_of_inputs() + lane_ * 2;
#pragma unroll
    for (int step = 0; step < 2 * kHalves; step += kGroupSteps) {
      float d[2][4] = {};
#pragma unroll
      for (int i = step; i < step + kGroupSteps; ++i) {
        mma<Number>(d[i % 2], ones, x_[i / 2][i % 2 * 2], x_[i / 2][i % 2 * 2 + 1]);
      }
      if (lane_ < 4) {
        *reinterpret_cast<float2*>(to + step / kGroupSteps * kGemvTokens) = {d[0][0] + d[1][0],
                                                                             d[0][1] + d[1][1]};
      }
    }
  }
  __device__ float* sums_of_inputs() const {
    return reinterpret_cast<float*>(shared_ + p_.shared.x_sums) +
           warp_ * 2 * p_.pair_input_sums * kGemvTokens;
  }

  /// Sums of a segment of a strip of the batch.
  __device__ float* sums_at(int segment, int strip) const {
    return reinterpret_cast<float*>(shared_ + p_.shared.partials) +
           (segment * p_.batch + strip) * tokens_ * kPartialStride;
  }

  /// This warp's segments of the strips of a batch.
  template <bool kOneGroup>
  __device__ void multiply_batch(int begin, int strips) {
    const uint32_t sums = shared_address(sums_of_inputs()) + lane_ % 4 * 8;
    const int sums_bytes = p_.pair_input_sums * kGemvTokens * 4;
    const bool is_last = begin + p_.batch >= strips_;
#pragma unroll 1
    for (int segment = warp_; segment < p_.segments; segment += kGemvWarps) {
      if (segment != held_) begin_segment(segment, strips, is_last);
      float* to = sums_at(segment, 0);
#pragma unroll 1
      for (int strip = 0; strip < strips; ++strip) {
        wait_copies<kGemvDepth - 1>();
        __syncwarp();  // so have the copies of all lanes, which are done with the slot before
        load_next();
        PairAccumulators<Number, Decoder, kGroups, 1> sum;
        sum.clear();
#pragma unroll
        for (int pair = 0; pair < 2; ++pair) {
          sum.template add_pair<kOneGroup>(
              reader_, stream_.place(pair), table_, sums + pair * sums_bytes,
              [&](int tile, int step, int, uint32_t(&b)[4]) {
                const int i = (pair * 2 + tile) * (kSteps / 2) + step / 2;
#pragma unroll
                for (int j = 0; j < 4; ++j) b[j] = x_[i][j];
              });
        }
        stream_.next_slot();
        sum.store(to, lane_, tokens_, false);
        to += tokens_ * kPartialStride;
      }
    }
  }

  /// With one buffer the inputs of the next segment are copied while this one is at work.
  __device__ void begin_segment(int segment, int strips, bool is_last) {
    const bool has_one = p_.x_buffers == 1;
    if (has_one && held_ >= 0) {
      // Those of this one were asked for before the first weights of the segment before.
      if (strips >= kGemvDepth) {
        wait_copies<kGemvDepth - 1>();
      } else {
        wait_copies<0>();
      }
    }
    stream_.begin_reads(segment);
    hold_inputs(segment);
    const int next = segment + kGemvWarps;
    if (has_one && next < p_.segments) {
      copy_inputs(next);
    } else if (has_one && !is_last && segment != warp_) {
      copy_inputs(warp_);
    }
  }

  /// Adds the sums of all segments, in their order: a thread for two rows of a strip and a token.
  __device__ void add_segments(int begin, int strips) {
    const int stride = p_.batch * tokens_ * kPartialStride;
    const int row = lane_ % 8;
    for (int i = threadIdx.x / 8; i < strips * tokens_; i += kGemvWarps * kLanes / 8) {
      const int of_batch = tokens_ == 1 ? i : i / tokens_;
      const int strip = first_strip_ + begin + of_batch;
      const int token = token0_ + i - of_batch * tokens_;
      const float* at = sums_at(0, 0) + i * kPartialStride + row;
      float low = 0;
      float high = 0;
#pragma unroll 8
      for (int segment = 0; segment < p_.segments; ++segment) {
        low += at[0];
        high += at[8];
        at += stride;
      }
      if (is_plain(a_, strip)) {
        auto* const y = static_cast<uint16_t*>(a_.y) + token * a_.y_stride + strip * kStripRows;
        store_number<Number>(y, row, low * a_.weights.gain);
        store_number<Number>(y, row + 8, high * a_.weights.gain);
      } else {
        finish<Number>(a_, strip, row, token, low, high);
      }
    }
  }

  static constexpr int kHalves = kSegmentTiles * kSteps / 2;  // what load_matrices() loads at once

  const LinearArguments& a_;
  const GemvPartition& p_;
  uint8_t* const shared_;
  const int warp_;
  const int lane_;
  const int group_;
  const int first_strip_;
  const int strips_;
  const int token0_;
  const int tokens_;
  Stream stream_;
  const Reader reader_;
  Table table_;
  int ahead_segment_ = 0;  // that is copied now
  int ahead_strip_ = 0;    // where its batch begins
  int ahead_left_ = 0;     // strips
  int held_ = -1;          // the segment of x_
  uint32_t x_[kHalves][4];
};

template <class Number, class Decoder, int kGroups>
__global__ void __launch_bounds__(kGemvWarps* kLanes, 1)
    gemv_kernel(const __grid_constant__ LinearArguments a,
                const __grid_constant__ GemvPartition p) {
  extern __shared__ __align__(128) uint8_t shared[];
  let_next_kernel_start();
  GemvBlock<Number, Decoder, kGroups>(a, p, shared).run();
}

}  // namespace subbyte::cuda
