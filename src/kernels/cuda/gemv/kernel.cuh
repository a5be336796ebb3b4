#pragma once
// gemv: up to eight tokens. Each warp keeps its inputs in registers and lets the weights pass by.
//
//   CTA c of `strip_ctas`   has strips [c S / strip_ctas, (c + 1) S / strip_ctas); where there are
//                           more than eight tokens, neighbouring CTAs do the same for others
//   warp w of 16            has segments w, w + 16, ... of 256 inputs of all those strips:
//
//                inputs ->
//     strip 0    [ warp 0 | warp 1 | ... | warp 15 | warp 0 | ... ]
//     strip 1    [ warp 0 | warp 1 | ... | warp 15 | warp 0 | ... ]
//
// So activations are loaded once, into registers, by the warp that needs them, and no warp waits
// for another until the end, when the partials of all segments of a strip, which lie in shared
// memory, are added in their order. If they do not fit for all strips, this is done for a batch of
// strips at a time. Compared with small_m there is less to compute before the first weights and for
// each of them; but a CTA has whole strips, so their number should divide well.
//
// To read it: this file from run() to main_loop(), then common/pair_mma.cuh, whose head has the
// protocol of the ring (fill, wait, publish, release), and weight_stream.cuh, which says what is
// in a slot.

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/common/pair_mma.cuh"
#include "kernels/cuda/common/prologue_epilogue.cuh"
#include "kernels/cuda/gemv/byte_table.cuh"
#include "kernels/cuda/gemv/diagonal.cuh"
#include "kernels/cuda/gemv/partition.h"
#include "kernels/cuda/gemv/weight_stream.cuh"

namespace subbyte::cuda {

/// A CTA at work. Every warp has one, with its own way through the weights.
template <class Number, class Decoder, int kGroups>
class GemvCta {
 public:
  using Stream = GemvWeightStream<Decoder, kGroups>;
  using Reader = PairReader<Decoder, kGroups>;

  __device__ GemvCta(const LinearArguments& a, const GemvPartition& p, uint8_t* shared)
      : a_(a),
        p_(p),
        shared_(shared),
        warp_(__shfl_sync(~0u, threadIdx.x / kLanes, 0)),  // so the compiler knows it is uniform
        lane_(threadIdx.x % kLanes),
        strip_cta_(p.token_tiles == 1 ? blockIdx.x : blockIdx.x / p.token_tiles),
        first_strip_(p.strips.begin(strip_cta_)),
        strips_(p.strips.size(strip_cta_)),
        token0_((blockIdx.x - strip_cta_ * p.token_tiles) * kGemvTokens),
        tokens_(min(kGemvTokens, a.m - token0_)),
        stream_(a.weights, p, shared_address(shared) + p.shared.rings + warp_ * p.ring_bytes,
                lane_),
        reader_(a.weights, shared_address(shared) + p.shared.scale_values, lane_) {}

  __device__ __forceinline__ void run() {
    // --- inputs first: after the weights of all warps they would wait for a microsecond ---
    if (!a_.is_dependent) copy_first_inputs();
    cp_async_commit();
    // --- fill all slots but one, before the kernel waits for the one that writes its inputs ---
    fill_segment_ = warp_;
    begin_fills();
#pragma unroll 1
    for (int i = is_diagonal() ? kGemvDepth - kDiagonalDepth : 0; i < kGemvDepth; ++i) {
      fill_slot();
      stream_.next_slot_to_fill();
    }
    stream_.fill_constant_zeros(reader_);
    prepare_tables();
    // --- run the code of the end once for nothing, so that it is there when the last weights are:
    //     fetched then, it would come after those of other CTAs. Next, and once, the inputs ---
    // --- then multiply batch after batch; reduce the partials of all warps after each ---
    int begin = keep_in_register(kRehearsal);  // as if any: or there would be that code twice
#pragma unroll 1
    while (begin < strips_) {
      const int strips = min(p_.batch, strips_ - begin);
      if (begin != kRehearsal) {
        multiply_batch(begin, strips);
        __syncthreads();
      }
      reduce_segments(begin, strips);
      if (begin == kRehearsal) {
        wait_for_inputs();
        begin = 0;
        continue;
      }
      begin += p_.batch;
      if (begin < strips_) __syncthreads();  // before the partials are overwritten
    }
    cp_async_wait<0>();  // of empty groups: no copy outlives the CTA
  }

 private:
  /// Begin of a batch that is not there.
  static constexpr int kRehearsal = -1;

  /// Waits for the first inputs, whose group is before those of the slots unless they come late.
  __device__ __forceinline__ void wait_for_inputs() {
    if (a_.is_dependent) {
      griddepcontrol_wait();
      copy_first_inputs();
      cp_async_commit();
      cp_async_wait<0>();
    } else if (is_diagonal()) {
      cp_async_wait<kDiagonalDepth>();
    } else {
      cp_async_wait<kGemvDepth>();
    }
  }
  __device__ bool is_diagonal() const {
    return kIsDiagonal && p_.is_diagonal;
  }

  __device__ __forceinline__ void multiply_batch(int begin, int strips) {
    if (is_diagonal()) {
      main_loop<false, kIsDiagonal>(begin, strips);
    } else if (kGroups == 1 && p_.one_group) {
      main_loop<kGroups == 1, false>(begin, strips);
    } else {
      main_loop<false, false>(begin, strips);
    }
  }

  /// The warp's segments of the strips of a batch. Each iteration of the inner loop is one slot.
  template <bool kOneGroup, bool kDiagonal>
  __device__ __forceinline__ void main_loop(int begin, int strips) {
    constexpr int kDepth = kDiagonal ? kDiagonalDepth : kGemvDepth;
    const uint32_t x_sums = shared_address(input_sums()) + lane_ % 4 * 8;
    const bool is_last = begin + p_.batch >= strips_;
#pragma unroll 1
    for (int segment = warp_; segment < p_.segments; segment += kGemvWarps) {
      if (segment != x_segment_) change_segment(segment, strips, is_last);
      float* to = partials(segment, 0);
#pragma unroll 1
      for (int strip = 0; strip < strips; ++strip) {
        // --- wait for slot i; publish it; that also releases slot i - 1 ---
        cp_async_wait<kDepth - 1>();
        __syncwarp();
        // --- fill slot i - 1 with what is kDepth ahead ---
        fill_slot();
        // --- read slot i and multiply: the partial of this segment of the strip ---
        if constexpr (kDiagonal) {
          const auto multiply = [&](const auto& table) {
            multiply_diagonal<Number>(reader_, {stream_.place(0), stream_.place(1)},
                                      stream_.own_scales(), table, x_[0], lane_, to);
          };
          if constexpr (!kHasByteTable<Decoder>) {
            multiply(table_);
          } else if (!kHasPairTable<Decoder> || p_.has_byte_table) {
            multiply(byte_table_);
          } else if constexpr (kHasPairTable<Decoder>) {
            multiply(table_);
          }
          to += kPartialStride;
        } else {
          multiply<kOneGroup>(x_sums, to);
          to += tokens_ * kPartialStride;
        }
        stream_.next_slot();
      }
    }
  }

  template <bool kOneGroup>
  __device__ __forceinline__ void multiply(uint32_t x_sums, float* to) {
    const int x_sums_bytes = p_.pair_input_sums * kGemvTokens * 4;
    PairAccumulators<Number, Decoder, kGroups, 1> accumulators;
    accumulators.clear();
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      accumulators.template add_pairs<kOneGroup>(
          reader_, {stream_.place(pair)}, table_, x_sums + pair * x_sums_bytes,
          [&](int tile, int step, int, uint32_t(&b)[4]) {
            const int i = (pair * 2 + tile) * (kSteps / 2) + step / 2;
#pragma unroll
            for (int j = 0; j < 4; ++j) b[j] = x_[i][j];
          });
    }
    accumulators.store(to, lane_, tokens_, false);
  }

  /// Fills one slot: the next strip of the batch, else the first of the next segment, else the
  /// first of the next batch, else nothing. Commits one group in any case.
  __device__ __forceinline__ void fill_slot() {
    if (fills_left_ > 0) {
      stream_.load();
      if (--fills_left_ == 0) {
        fill_segment_ += kGemvWarps;
        if (fill_segment_ >= p_.segments) {
          fill_segment_ = warp_;
          fill_strip_ += p_.batch;
        }
        begin_fills();
      }
    }
    cp_async_commit();
  }
  __device__ __forceinline__ void begin_fills() {
    fills_left_ = fill_segment_ < p_.segments ? min(p_.batch, strips_ - fill_strip_) : 0;
    if (fills_left_ > 0) stream_.begin_loads(first_strip_ + fill_strip_, fill_segment_);
  }

  /// Brings the inputs of `segment` to registers. With one buffer for inputs those of the next
  /// segment are copied while this one is at work.
  __device__ __forceinline__ void change_segment(int segment, int strips, bool is_last) {
    const bool one_buffer = p_.x_buffers == 1;
    if (one_buffer && x_segment_ >= 0) {
      // Its inputs were committed with the first slot of the segment before.
      if (strips >= kGemvDepth) {
        cp_async_wait<kGemvDepth - 1>();
      } else {
        cp_async_wait<0>();
      }
    }
    stream_.begin_reads(segment);
    hold_inputs(segment);
    const int next = segment + kGemvWarps;
    if (one_buffer && next < p_.segments) {
      copy_inputs(next);
    } else if (one_buffer && !is_last && segment != warp_) {
      copy_inputs(warp_);
    }
  }

  /// Tables, which all warps read.
  __device__ __forceinline__ void prepare_tables() {
    const WeightArguments& w = a_.weights;
    fill_scale_values(reinterpret_cast<float*>(shared_ + p_.shared.scale_values), w.scale);
    bool is_filled = false;
    if constexpr (kIsDiagonal && kHasByteTable<Decoder>) {
      if (p_.has_byte_table) {
        byte_table_ = ByteTable<Decoder>(shared_, lane_);
        byte_table_.hold_values(w);
        byte_table_.fill(w, shared_);
        is_filled = true;
      }
    }
    if (!is_filled) table_ = fill_table<Decoder>(w, reinterpret_cast<uint32_t*>(shared_));
    if (Decoder::kHasTable || w.scale.bytes == 1) __syncthreads();
  }

  /// Of the inputs of one of this warp's segments, in shared memory.
  __device__ uint8_t* inputs(int segment) const {
    const int buffer = warp_ * p_.x_buffers + (p_.x_buffers == 1 ? 0 : segment / kGemvWarps);
    return shared_ + p_.shared.x + buffer * min(a_.m, kGemvTokens) * kGemvInputStride;
  }

  __device__ __forceinline__ void copy_first_inputs() {
    if (a_.m == 1) return copy_first_inputs_of_one();
    const int end = p_.x_buffers == 1 ? warp_ + 1 : p_.segments;
#pragma unroll 1
    for (int segment = warp_; segment < end; segment += kGemvWarps) copy_inputs(segment);
  }

  /// The same for one token, with little to compute: no weights are on their way yet.
  __device__ __forceinline__ void copy_first_inputs_of_one() {
    if (!a_.is_aligned) return;
    const auto* const x = static_cast<const uint16_t*>(a_.x);
    const int begin = warp_ * kSegmentCols;
    const int end = p_.x_buffers == 1 ? begin + kSegmentCols : p_.segments * kSegmentCols;
    uint32_t to = shared_address(inputs(warp_)) + lane_ * 16;
#pragma unroll 1
    for (int col = begin + lane_ * 8; col < end; col += kGemvWarps * kSegmentCols) {
      const bool there = col < a_.weights.cols;
      cp_async_zfill<16>(to, there ? x + col : x, there);
      to += kGemvInputStride;
    }
  }

  /// Starts to copy a segment of activations, if they are aligned.
  __device__ __forceinline__ void copy_inputs(int segment) {
    if (!a_.is_aligned || segment >= p_.segments) return;
    const int col = segment * kSegmentCols + lane_ * 8;
    const bool there = col < a_.weights.cols;
    const uint16_t* x = static_cast<const uint16_t*>(a_.x) + int64_t{token0_} * a_.x_stride;
    const uint32_t to = shared_address(inputs(segment)) + lane_ * 16;
#pragma unroll 1
    for (int i = 0; i < tokens_; ++i) {
      cp_async_zfill<16>(to + i * kGemvInputStride, there ? x + i * a_.x_stride + col : x, there);
    }
  }

  /// Loads them one by one.
  __device__ __forceinline__ void gather_inputs(int segment) {
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

  /// Brings a segment of activations, whose copies have arrived, to registers, and sums them.
  __device__ __forceinline__ void hold_inputs(int segment) {
    if (!a_.is_aligned) gather_inputs(segment);
    __syncwarp();
    if (is_diagonal()) {
      // Matrix i has inputs 8 i to 8 i + 7 of each group, a group in a row.
      ldmatrix_x4(x_[0],
                  shared_address(inputs(segment)) + lane_ % 8 * kDiagonalCols * 2 + lane_ / 8 * 16);
      __syncwarp();
      x_segment_ = segment;
      return;
    }
    // Rows of tokens that are not there repeat the last one; their results are not stored.
    const uint32_t row = shared_address(inputs(segment)) +
                         min(lane_ % 8, tokens_ - 1) * kGemvInputStride + lane_ / 8 * 16;
#pragma unroll
    for (int i = 0; i < kHalves; ++i) {
      ldmatrix_x4(x_[i], row + i * 2 * kStepCols * 2);
    }
    if constexpr (Decoder::kHasZeros) {
      if (kGroups == 1 && p_.one_group) {
        sum_segment<2 * kSteps>();
      } else {
        sum_segment<kSteps / kGroups>();
      }
    }
    __syncwarp();
    x_segment_ = segment;
  }

  /// The sums of the inputs of each group, or of each pair.
  template <int kGroupSteps>
  __device__ void sum_segment() {
    float* const to = input_sums() + lane_ * 2;
#pragma unroll
    for (int first = 0; first < 2 * kHalves; first += kGroupSteps) {
      sum_inputs<Number, kGroupSteps>(to + first / kGroupSteps * kGemvTokens, lane_,
                                      [&](int step, uint32_t(&b)[2]) {
                                        const int i = first + step;
                                        b[0] = x_[i / 2][i % 2 * 2];
                                        b[1] = x_[i / 2][i % 2 * 2 + 1];
                                      });
    }
  }
  __device__ float* input_sums() const {
    return reinterpret_cast<float*>(shared_ + p_.shared.x_sums) +
           warp_ * 2 * p_.pair_input_sums * kGemvTokens;
  }

  /// The partial of a segment of a strip of the batch.
  __device__ float* partials(int segment, int strip) const {
    return reinterpret_cast<float*>(shared_ + p_.shared.partials) +
           (segment * p_.batch + strip) * tokens_ * kPartialStride;
  }

  /// Adds the partials of all segments in a fixed order: a warp for a strip and a token, of which
  /// eight lanes have two rows and every fourth segment each. A rehearsal adds what else is in
  /// shared memory, and stores nothing.
  __device__ __forceinline__ void reduce_segments(int begin, int strips) {
    const bool is_rehearsal = begin == kRehearsal;
    const int stride = is_rehearsal ? 0 : p_.batch * tokens_ * kPartialStride;
    const int end = is_rehearsal ? kGemvWarps : strips * tokens_;
    const float* const from = is_rehearsal
                                  ? reinterpret_cast<const float*>(shared_ + p_.shared.scale_values)
                                  : partials(lane_ / 8, 0);
    const int row = lane_ % 8;
    for (int i = warp_; i < end; i += kGemvWarps) {
      const int of_batch = tokens_ == 1 ? i : i / tokens_;
      const int strip = first_strip_ + begin + of_batch;
      const int token = token0_ + i - of_batch * tokens_;
      const float* at = from + (is_rehearsal ? 0 : i) * kPartialStride + row;
      float low = 0;
      float high = 0;
#pragma unroll 8
      for (int segment = lane_ / 8; segment < p_.segments; segment += 4) {
        low += at[0];
        high += at[8];
        at += 4 * stride;
      }
#pragma unroll
      for (int distance = 8; distance < kLanes; distance *= 2) {
        low += __shfl_xor_sync(~0u, low, distance);
        high += __shfl_xor_sync(~0u, high, distance);
      }
      const bool stores = lane_ < 8 && !is_rehearsal;
      if (is_plain(a_, strip)) {
        auto* const y = static_cast<uint16_t*>(a_.y) + token * a_.y_stride + strip * kStripRows;
        low *= a_.weights.gain;
        high *= a_.weights.gain;
        if (stores) {
          store_number<Number>(y, row, low);
          store_number<Number>(y, row + 8, high);
        }
      } else if (stores) {
        finish<Number>(a_, strip, row, token, low, high);
      }
    }
  }

  static constexpr bool kIsDiagonal = kMayBeDiagonal<Decoder, kGroups>;
  static constexpr int kHalves = kSegmentTiles * kSteps / 2;  // what ldmatrix_x4() loads at once

  const LinearArguments& a_;
  const GemvPartition& p_;
  uint8_t* const shared_;
  const int warp_;
  const int lane_;
  const int strip_cta_;
  const int first_strip_;
  const int strips_;
  const int token0_;
  const int tokens_;
  Stream stream_;
  const Reader reader_;
  Table table_;
  ByteTable<Decoder> byte_table_;  // instead, where inputs are diagonal
  int fill_segment_ = 0;           // that is copied now
  int fill_strip_ = 0;             // where its batch begins
  int fills_left_ = 0;             // strips
  int x_segment_ = -1;             // whose inputs x_ has
  uint32_t x_[kHalves][4];
};

template <class Number, class Decoder, int kGroups>
__global__ void __launch_bounds__(kGemvWarps* kLanes, 1)
    gemv_kernel(const __grid_constant__ LinearArguments a,
                const __grid_constant__ GemvPartition p) {
  extern __shared__ __align__(128) uint8_t shared[];
  griddepcontrol_launch_dependents();
  GemvCta<Number, Decoder, kGroups>(a, p, shared).run();
}

}  // namespace subbyte::cuda
