#pragma once
// Few tokens: the time is that of reading the weights, so everything serves to have many loads
// under way from the first moment to the last.
//
//   cluster g of `groups`   has strips [g S / groups, (g + 1) S / groups)
//   block r of the cluster  has the r-th part of the inputs of those strips
//   warps (16 or 8)         warps_in_k of them share a strip, each with its part of those inputs;
//                           as many strips as that leaves are a round
//
// A warp multiplies 16 outputs x 64 inputs by 8 * kTokens8 tokens with m16n8k16 and adds up in
// float32; scales are applied to the sums at the end of each group. After a round the sums of the
// warps are added in their order, at the end those of the blocks, through distributed shared
// memory, in theirs. So the order depends on the partition alone, and results are the same bits
// each time.
//
// The first weights are asked for before the kernel waits for the one that writes its activations.

#include <cstdint>

#include "kernels/cuda/device/epilogue.cuh"
#include "kernels/cuda/device/shared_sizes.h"
#include "kernels/cuda/device/weight_stream.cuh"

namespace subbyte::cuda {

/// What one block has to do.
struct NarrowWork {
  int first_strip;
  int strips;
  int first_tile;
  int tiles;
};

__device__ __forceinline__ NarrowWork narrow_work(const NarrowPartition& p) {
  const int group = blockIdx.x >> p.splits_log2;
  const int rank = blockIdx.x & (p.splits - 1);
  return {p.strips.begin(group), p.strips.size(group), p.tiles.begin(rank), p.tiles.size(rank)};
}

/// A warp's segments one after the other: chunk after chunk, round after round.
template <int kDepth>
class NarrowCursor {
 public:
  __device__ NarrowCursor(const NarrowWork& work, const NarrowPartition& p, int warp)
      : work_(work),
        p_(p),
        strip_in_round_(warp >> p.warps_in_k_log2),
        part_(warp & (p.warps_in_k - 1)) {
    begin_item();
  }

  __device__ Segment segment() const {
    return {work_.first_strip + strip(), work_.first_tile + tile_,
            done() || strip() >= work_.strips ? 0 : max(0, min(kDepth, end_ - tile_))};
  }
  __device__ bool ends_item() const { return tile_ + kDepth >= end_; }
  __device__ bool done() const { return chunk_ >= p_.chunks; }

  __device__ void advance() {
    if (done()) return;
    tile_ += kDepth;
    if (tile_ < end_) return;
    if (++round_ >= p_.rounds) {
      round_ = 0;
      ++chunk_;
    }
    begin_item();
  }

 private:
  __device__ int strip() const { return round_ * p_.strips_in_round + strip_in_round_; }
  __device__ void begin_item() {
    const int begin = chunk_ * p_.chunk_tiles;
    const int tiles = min(p_.chunk_tiles, work_.tiles - begin);  // may be none in the last chunk
    tile_ = begin + (tiles * part_ >> p_.warps_in_k_log2);
    end_ = begin + (tiles * (part_ + 1) >> p_.warps_in_k_log2);
  }

  const NarrowWork work_;
  const NarrowPartition& p_;
  const int strip_in_round_;
  const int part_;
  int chunk_ = 0;
  int round_ = 0;
  int tile_ = 0;
  int end_ = 0;
};

/// Copies tokens [token0, token0 + tokens) of a chunk of inputs to shared memory, zeros beyond K.
template <class Number>
__device__ void stage_activations(const LinearArguments& a, uint8_t* shared, int stride,
                                  int64_t token0, int tokens, int first_col, int cols) {
  const WeightArguments& w = a.weights;
  const uint16_t* x = static_cast<const uint16_t*>(a.x) + token0 * a.x_stride;
  const bool wide = w.gather == nullptr && w.cols % 8 == 0 && a.x_stride % 8 == 0 &&
                    reinterpret_cast<uintptr_t>(a.x) % 16 == 0;
  if (wide) {
    constexpr int kAtOnce = 4;  // tokens: loads that are under way together
    for (int token = 0; token < tokens; token += kAtOnce) {
      for (int i = threadIdx.x * 8; i < cols; i += blockDim.x * 8) {
        uint4 v[kAtOnce];
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
          const bool there = token + j < tokens && first_col + i < w.cols;
          v[j] = there
                     ? *reinterpret_cast<const uint4*>(x + (token + j) * a.x_stride + first_col + i)
                     : uint4{};
        }
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
          if (token + j < tokens) {
            *reinterpret_cast<uint4*>(shared + (token + j) * stride + i * 2) = v[j];
          }
        }
      }
    }
    return;
  }
  for (int token = 0; token < tokens; ++token) {
    for (int i = threadIdx.x; i < cols; i += blockDim.x) {
      const int col = first_col + i;
      uint16_t v = 0;
      if (col < w.cols) v = x[token * a.x_stride + (w.gather != nullptr ? w.gather[col] : col)];
      *reinterpret_cast<uint16_t*>(shared + token * stride + i * 2) = v;
    }
  }
}

/// The sums of a warp: one strip, 8 * kTokens8 tokens.
template <class Number, class Decoder, int kGroups, int kTokens8>
class NarrowSums {
 public:
  static constexpr int kStepsPerGroup = kSteps / kGroups;

  __device__ void clear() { clear(sums_); }

  /// Adds kTiles neighbours from slot `slot`, whose copies have been waited for. Their products do
  /// not depend on each other: so one has something to do while the other waits. `x` is the shared
  /// address of this lane's row of ldmatrix for the first, for each 8 tokens.
  template <int kTiles, class Stream>
  __device__ void add_tiles(const Stream& stream, int slot, const Table& table,
                            const uint32_t (&x)[kTokens8]) {
    uint32_t codes[kTiles][Stream::kWords];
    uint32_t b[kTiles][kTokens8][4];
    float group[kTiles][kTokens8][4];
    typename Stream::Prepared prepared[kTiles];
#pragma unroll
    for (int i = 0; i < kTiles; ++i) stream.read_codes(slot + i, codes[i]);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        if (step % kStepsPerGroup == 0) {
          prepared[i] = stream.prepared(slot + i, step / kStepsPerGroup);
          clear(group[i]);
        }
        if (step % 2 == 0) {
#pragma unroll
          for (int n = 0; n < kTokens8; ++n) {
            load_matrices(b[i][n], x[n] + (i * kTileCols + step * kStepCols) * 2);
          }
        }
      }
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        uint32_t registers[4];
        decode_step<Decoder>(codes[i], step, prepared[i], table, registers);
#pragma unroll
        for (int n = 0; n < kTokens8; ++n) {
          mma<Number>(group[i][n], registers, b[i][n][step % 2 * 2], b[i][n][step % 2 * 2 + 1]);
        }
      }
      if ((step + 1) % kStepsPerGroup == 0) {
#pragma unroll
        for (int i = 0; i < kTiles; ++i) add_scaled(group[i], prepared[i].scales);
      }
    }
  }

  /// To [token][kSumStride].
  __device__ void store(float* to, int lane, int tokens) const {
    const int row = lane / 4;
#pragma unroll
    for (int n = 0; n < kTokens8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int token = n * 8 + lane % 4 * 2 + i % 2;
        if (token < tokens) to[token * kSumStride + row + i / 2 * 8] = sums_[n][i];
      }
    }
  }

 private:
  static __device__ void clear(float (&sums)[kTokens8][4]) {
#pragma unroll
    for (int n = 0; n < kTokens8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[n][i] = 0;
    }
  }

  __device__ void add_scaled(const float (&group)[kTokens8][4], float2 scale) {
#pragma unroll
    for (int n = 0; n < kTokens8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sums_[n][i] = fmaf(i < 2 ? scale.x : scale.y, group[n][i], sums_[n][i]);
      }
    }
  }

  float sums_[kTokens8][4];
};

/// The warps that share a strip wait for each other.
__device__ __forceinline__ void wait_for_strip(const NarrowPartition& p, int strip_in_round) {
  if (p.warps_in_k == 1) {
    __syncwarp();
  } else {
    asm volatile("bar.sync %0, %1;" ::"r"(strip_in_round + 1), "r"(p.warps_in_k * kLanes)
                 : "memory");
  }
}

/// Adds the sums of the warps that share a strip, in their order, and finishes the results or adds
/// them to the block's partial sums. By these warps.
template <class Number>
__device__ void end_strip(const LinearArguments& a, const NarrowPartition& p,
                          const NarrowWork& work, const float* sums, float* partial, int strip,
                          bool first_chunk, int64_t token0, int tokens, int sum_floats) {
  const int threads = p.warps_in_k * kLanes;
  for (int i = threadIdx.x & (threads - 1); i < tokens * 8; i += threads) {
    const int row = i & 7;
    const int token = i >> 3;
    const float* from = sums + token * kSumStride + row;
    float low = 0;
    float high = 0;
    for (int k = 0; k < p.warps_in_k; ++k) {
      low += from[k * sum_floats];
      high += from[k * sum_floats + 8];
    }
    if (partial == nullptr) {
      finish<Number>(a, work.first_strip + strip, row, token0 + token, low, high);
      continue;
    }
    float* to = partial + strip * sum_floats + token * kSumStride + row;
    to[0] = first_chunk ? low : to[0] + low;
    to[8] = first_chunk ? high : to[8] + high;
  }
}

/// Adds the partial sums of the blocks of a cluster, in their order; each block does a part.
template <class Number>
__device__ void end_cluster(const LinearArguments& a, const NarrowPartition& p,
                            const NarrowWork& work, const float* partial, int64_t token0,
                            int tokens, int sum_floats) {
  const int rank = blockIdx.x & (p.splits - 1);
  const int all = work.strips * tokens * 8;
  for (int i = rank * blockDim.x + threadIdx.x; i < all; i += p.splits * blockDim.x) {
    const int row = i % 8;
    const int token = i / 8 % tokens;
    const int strip = i / 8 / tokens;
    const float* at = partial + strip * sum_floats + token * kSumStride + row;
    float low = 0;
    float high = 0;
    for (int r = 0; r < p.splits; ++r) {
      low += p.splits == 1 ? at[0] : load_from_block(shared_address(at), r);
      high += p.splits == 1 ? at[8] : load_from_block(shared_address(at + 8), r);
    }
    finish<Number>(a, work.first_strip + strip, row, token0 + token, low, high);
  }
}

/// A block at work. Every warp has one, with its own way through the weights.
template <class Number, class Decoder, int kGroups, int kTokens8>
class NarrowBlock {
 public:
  static constexpr int kTokens = 8 * kTokens8;
  static constexpr int kWarps = narrow_warps(kTokens);
  static constexpr int kSumFloats = kTokens * kSumStride;
  using Stream = WeightStream<Decoder, kGroups, narrow_depth(Decoder::kBits)>;

  __device__ NarrowBlock(const LinearArguments& a, const NarrowPartition& p, uint8_t* shared)
      : a_(a),
        p_(p),
        shared_(shared),
        token0_(int64_t{blockIdx.y} * kTokens),
        tokens_(static_cast<int>(min(int64_t{kTokens}, a.m - token0_))),
        x_rows_(min(kTokens, a.m)),
        stream_size_(stream_size(a.weights)),
        at_(narrow_shared(table_bytes<Decoder>(), stream_size_, kTokens, x_rows_, p.chunk_tiles,
                          0)),
        work_(narrow_work(p)),
        stream_(a.weights, reinterpret_cast<float*>(shared + at_.scale_values),
                shared + at_.streams + warp() * stream_size_, lane()),
        next_(work_, p, warp()) {}

  __device__ void run() {
    begin_stream();
    prepare_shared();
    wait_for_previous_kernel();
    for (int chunk = 0; chunk < p_.chunks; ++chunk) {
      stage_chunk(chunk);
      for (int round = 0; round < p_.rounds; ++round) {
        multiply_item(chunk);
        end_item(chunk, round);
      }
    }
    wait_copies<0>();
    if (partial() != nullptr) end_block();
  }

 private:
  static __device__ int warp() { return threadIdx.x / kLanes; }
  static __device__ int lane() { return threadIdx.x % kLanes; }
  static __device__ int stream_size(const WeightArguments& w) {
    const int zero_size = Decoder::kHasZeros && w.zeros != nullptr ? w.zero_bytes : 0;
    return stream_bytes(Stream::kDepth, Decoder::kBits, kGroups, w.scale.bytes, zero_size,
                        Decoder::kHasZeros);
  }
  __device__ float* sums() const { return reinterpret_cast<float*>(shared_ + at_.sums); }
  /// Sums of all strips of the block, where one pass over a strip does not finish it; or nullptr.
  __device__ float* partial() const {
    const bool is_needed = p_.splits > 1 || p_.chunks > 1;
    return is_needed ? reinterpret_cast<float*>(shared_ + at_.partial) : nullptr;
  }

  /// Asks for the first weights.
  __device__ void begin_stream() {
    segment_ = next_.segment();
    const uint8_t* from = stream_.codes_of(segment_);
    stream_.load_scales(segment_, 0);
#pragma unroll
    for (int i = 0; i < Stream::kDepth; ++i) stream_.load_codes(from, i, i < segment_.count);
  }

  /// Tables, and a row of zeros for the tokens that are not there.
  __device__ void prepare_shared() {
    const WeightArguments& w = a_.weights;
    fill_scale_values(reinterpret_cast<float*>(shared_ + at_.scale_values), w.scale);
    table_ = fill_table<Decoder>(w, reinterpret_cast<uint32_t*>(shared_));
    uint8_t* const zeros = shared_ + at_.x + x_rows_ * at_.x_stride;
    for (int i = threadIdx.x * 16; i < at_.x_stride; i += blockDim.x * 16) {
      *reinterpret_cast<uint4*>(zeros + i) = uint4{};
    }
#pragma unroll
    for (int n = 0; n < kTokens8; ++n) {
      const int token = n * 8 + lane() % 8;
      x_row_[n] = shared_address(shared_ + at_.x) +
                  (token < tokens_ ? token : x_rows_) * at_.x_stride + lane() / 8 * 16;
    }
  }

  __device__ void stage_chunk(int chunk) {
    const int begin = chunk * p_.chunk_tiles;
    const int tiles = max(0, min(p_.chunk_tiles, work_.tiles - begin));
    __syncthreads();  // nobody reads the chunk before
    stage_activations<Number>(a_, shared_ + at_.x, at_.x_stride, token0_, tokens_,
                              (work_.first_tile + begin) * kTileCols, tiles * kTileCols);
    __syncthreads();
  }

  /// This warp's part of a strip and chunk, and the beginning of what comes next.
  __device__ void multiply_item(int chunk) {
    sum_.clear();
    for (bool last = false; !last;) {
      last = next_.ends_item();
      const int x_tile = segment_.tile - (work_.first_tile + chunk * p_.chunk_tiles);
      next_.advance();
      const Segment ahead = next_.segment();
      __syncwarp();  // all lanes are done with the buffer that is filled now
      stream_.load_scales(ahead, buffer_ ^ 1);
      wait_copies<Stream::kPendingAtScales>();
      __syncwarp();
      stream_.prepare_scales(segment_, buffer_);
      __syncwarp();
      multiply_segment(x_tile, ahead);
      buffer_ ^= 1;
      segment_ = ahead;
    }
  }

  __device__ void multiply_segment(int x_tile, const Segment& ahead) {
    const uint8_t* from = stream_.codes_of(ahead);
    uint32_t x[kTokens8];
#pragma unroll
    for (int n = 0; n < kTokens8; ++n) x[n] = x_row_[n] + x_tile * kTileCols * 2;
#pragma unroll 1
    for (int i = 0; i < Stream::kDepth; i += 2) {
      if (i + 1 < segment_.count) {
        wait_copies<Stream::kPendingAtTwoTiles>();
        sum_.template add_tiles<2>(stream_, i, table_, x);
      } else if (i < segment_.count) {
        wait_copies<Stream::kPendingAtTile>();
        sum_.template add_tiles<1>(stream_, i, table_, x);
      }
#pragma unroll
      for (int n = 0; n < kTokens8; ++n) x[n] += 2 * kTileCols * 2;
      stream_.load_codes(from, i, i < ahead.count);
      stream_.load_codes(from, i + 1, i + 1 < ahead.count);
    }
  }

  __device__ void end_item(int chunk, int round) {
    float* const round_sums = sums() + round_buffer_ * kWarps * kSumFloats;
    const int strip_in_round = warp() >> p_.warps_in_k_log2;
    const int strip = round * p_.strips_in_round + strip_in_round;
    sum_.store(round_sums + warp() * kSumFloats, lane(), tokens_);
    wait_for_strip(p_, strip_in_round);
    if (strip < work_.strips) {
      const float* from = round_sums + (strip_in_round << p_.warps_in_k_log2) * kSumFloats;
      end_strip<Number>(a_, p_, work_, from, partial(), strip, chunk == 0, token0_, tokens_,
                        kSumFloats);
    }
    if constexpr (narrow_round_buffers(kTokens) == 2) {
      round_buffer_ ^= 1;
    } else {
      wait_for_strip(p_, strip_in_round);
    }
  }

  __device__ void end_block() {
    __syncthreads();
    if (p_.splits > 1) wait_for_cluster();
    end_cluster<Number>(a_, p_, work_, partial(), token0_, tokens_, kSumFloats);
    if (p_.splits > 1) wait_for_cluster();  // nobody leaves while others read its sums
  }

  const LinearArguments& a_;
  const NarrowPartition& p_;
  uint8_t* const shared_;
  const int64_t token0_;
  const int tokens_;
  const int x_rows_;
  const int stream_size_;
  const NarrowShared at_;
  const NarrowWork work_;
  Stream stream_;
  NarrowCursor<Stream::kDepth> next_;
  Segment segment_;
  Table table_;
  NarrowSums<Number, Decoder, kGroups, kTokens8> sum_;
  uint32_t x_row_[kTokens8];  // of this lane, for ldmatrix
  int buffer_ = 0;
  int round_buffer_ = 0;
};

template <class Number, class Decoder, int kGroups, int kTokens8>
__global__ void __launch_bounds__(narrow_warps(kTokens8 * 8) * kLanes, 1)
    narrow_kernel(const __grid_constant__ LinearArguments a,
                  const __grid_constant__ NarrowPartition p) {
  extern __shared__ __align__(128) uint8_t shared[];
  let_next_kernel_start();
  NarrowBlock<Number, Decoder, kGroups, kTokens8>(a, p, shared).run();
}

}  // namespace subbyte::cuda
