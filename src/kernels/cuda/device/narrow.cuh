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

/// Range `i` of `n` nearly equal parts of [0, size).
__host__ __device__ constexpr int part_begin(int size, int i, int n) {
  return static_cast<int>(int64_t{size} * i / n);
}

/// What one block has to do.
struct NarrowWork {
  int first_strip;
  int strips;
  int first_tile;
  int tiles;
  int rounds;
  int chunks;
  int strips_in_round;
};

__device__ __forceinline__ NarrowWork narrow_work(const WeightArguments& w,
                                                  const NarrowPartition& p, int warps) {
  const int group = blockIdx.x / p.splits;
  const int rank = blockIdx.x % p.splits;
  NarrowWork work;
  work.first_strip = part_begin(w.strips, group, p.groups);
  work.strips = part_begin(w.strips, group + 1, p.groups) - work.first_strip;
  work.first_tile = part_begin(w.tiles, rank, p.splits);
  work.tiles = part_begin(w.tiles, rank + 1, p.splits) - work.first_tile;
  work.strips_in_round = warps / p.warps_in_k;
  work.rounds = (work.strips + work.strips_in_round - 1) / work.strips_in_round;
  work.chunks = (work.tiles + p.chunk_tiles - 1) / p.chunk_tiles;
  return work;
}

/// A warp's segments one after the other: chunk after chunk, round after round.
template <int kDepth>
class NarrowCursor {
 public:
  __device__ NarrowCursor(const NarrowWork& work, const NarrowPartition& p, int warp)
      : work_(work), p_(p), strip_in_round_(warp / p.warps_in_k), part_(warp % p.warps_in_k) {
    begin_item();
  }

  __device__ Segment segment() const {
    return {work_.first_strip + strip(), work_.first_tile + tile_,
            done() || strip() >= work_.strips ? 0 : min(kDepth, end_ - tile_)};
  }
  /// First tile of the item's chunk, from which x is counted.
  __device__ int chunk_begin() const { return work_.first_tile + chunk_ * p_.chunk_tiles; }
  __device__ bool ends_item() const { return tile_ + kDepth >= end_; }
  __device__ bool done() const { return chunk_ >= work_.chunks; }

  __device__ void advance() {
    if (done()) return;
    tile_ += kDepth;
    if (tile_ < end_) return;
    if (++round_ >= work_.rounds) {
      round_ = 0;
      ++chunk_;
    }
    begin_item();
  }

 private:
  __device__ int strip() const { return round_ * work_.strips_in_round + strip_in_round_; }
  __device__ void begin_item() {
    const int begin = chunk_ * p_.chunk_tiles;
    const int tiles = min(p_.chunk_tiles, work_.tiles - begin);
    tile_ = begin + part_begin(tiles, part_, p_.warps_in_k);
    end_ = begin + part_begin(tiles, part_ + 1, p_.warps_in_k);
  }

  const NarrowWork& work_;
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
    const int pieces = cols / 8;
    for (int i = threadIdx.x; i < tokens * pieces; i += blockDim.x) {
      const int token = i / pieces;
      const int col = i % pieces * 8;
      uint4 v = {};
      if (first_col + col < w.cols) {
        v = *reinterpret_cast<const uint4*>(x + token * a.x_stride + first_col + col);
      }
      *reinterpret_cast<uint4*>(shared + token * stride + col * 2) = v;
    }
    return;
  }
  for (int i = threadIdx.x; i < tokens * cols; i += blockDim.x) {
    const int token = i / cols;
    const int col = first_col + i % cols;
    uint16_t v = 0;
    if (col < w.cols) v = x[token * a.x_stride + (w.gather != nullptr ? w.gather[col] : col)];
    *reinterpret_cast<uint16_t*>(shared + token * stride + i % cols * 2) = v;
  }
}

/// The sums of a warp: one strip, 8 * kTokens8 tokens.
template <class Number, class Decoder, int kGroups, int kTokens8>
class NarrowSums {
 public:
  static constexpr int kStepsPerGroup = kSteps / kGroups;

  __device__ void clear() {
#pragma unroll
    for (int n = 0; n < kTokens8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums_[n][i] = 0;
    }
  }

  /// `x` is the shared address of this lane's row of ldmatrix for the tile, for the first 8 tokens;
  /// x_step bytes further is it for the next 8. Lanes without a token have both at zeros.
  template <class Stream>
  __device__ void add_tile(const Stream& stream, const Segment& s, int buffer, int slot,
                           const uint32_t* words, const Table& table, const uint32_t (&x)[kTokens8],
                           const uint32_t (&x_bytes)[kTokens8]) {
    uint32_t b[kTokens8][4];
    float group[kTokens8][4];
    ZeroPair zero = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int g = step / kStepsPerGroup;
      if (step % kStepsPerGroup == 0) {
#pragma unroll
        for (int n = 0; n < kTokens8; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) group[n][i] = 0;
        }
        if constexpr (Decoder::kHasZeros) zero = stream.zeros(s, buffer, slot, g);
      }
      if (step % 2 == 0) {
#pragma unroll
        for (int n = 0; n < kTokens8; ++n) load_matrices(b[n], x[n] + (step / 2) * x_bytes[n]);
      }
      uint32_t registers[4];
      decode_step<Decoder>(words, step, zero, table, registers);
#pragma unroll
      for (int n = 0; n < kTokens8; ++n) {
        mma<Number>(group[n], registers, b[n][step % 2 * 2], b[n][step % 2 * 2 + 1]);
      }
      if ((step + 1) % kStepsPerGroup == 0) {
        const float2 scale = stream.scales(s, buffer, slot, g);
#pragma unroll
        for (int n = 0; n < kTokens8; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            sums_[n][i] = fmaf(i < 2 ? scale.x : scale.y, group[n][i], sums_[n][i]);
          }
        }
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
  float sums_[kTokens8][4];
};

/// Adds the sums of the warps of each strip of a round, in their order, and finishes the results or
/// adds them to the block's partial sums.
template <class Number>
__device__ void end_round(const LinearArguments& a, const NarrowPartition& p,
                          const NarrowWork& work, const float* sums, float* partial, int round,
                          bool first_chunk, int64_t token0, int tokens, int sum_floats) {
  const int strips = min(work.strips_in_round, work.strips - round * work.strips_in_round);
  for (int i = threadIdx.x; i < strips * tokens * 8; i += blockDim.x) {
    const int row = i % 8;
    const int token = i / 8 % tokens;
    const int strip = i / 8 / tokens;
    const float* from = sums + strip * p.warps_in_k * sum_floats + token * kSumStride + row;
    float low = 0;
    float high = 0;
    for (int k = 0; k < p.warps_in_k; ++k) {
      low += from[k * sum_floats];
      high += from[k * sum_floats + 8];
    }
    const int strip_of_block = round * work.strips_in_round + strip;
    if (partial == nullptr) {
      finish<Number>(a, work.first_strip + strip_of_block, row, token0 + token, low, high);
      continue;
    }
    float* to = partial + strip_of_block * sum_floats + token * kSumStride + row;
    to[0] = first_chunk ? low : to[0] + low;
    to[8] = first_chunk ? high : to[8] + high;
  }
}

/// Adds the partial sums of the blocks of a cluster, in their order; each block does a part.
template <class Number>
__device__ void end_cluster(const LinearArguments& a, const NarrowPartition& p,
                            const NarrowWork& work, const float* partial, int64_t token0,
                            int tokens, int sum_floats) {
  const int rank = blockIdx.x % p.splits;
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

template <class Number, class Decoder, int kGroups, int kTokens8>
__global__ void __launch_bounds__(narrow_warps(kTokens8 * 8) * kLanes, 1)
    narrow_kernel(const __grid_constant__ LinearArguments a,
                  const __grid_constant__ NarrowPartition p) {
  using Stream = WeightStream<Decoder, kGroups, narrow_depth(Decoder::kBits)>;
  constexpr int kWarps = narrow_warps(kTokens8 * 8);
  extern __shared__ __align__(128) uint8_t shared[];
  const WeightArguments& w = a.weights;
  const int warp = threadIdx.x / kLanes;
  const int lane = threadIdx.x % kLanes;
  const int64_t token0 = int64_t{blockIdx.y} * kTokens8 * 8;
  const int tokens = static_cast<int>(min(int64_t{kTokens8} * 8, a.m - token0));
  const int zero_size = Decoder::kHasZeros && w.zeros != nullptr ? w.zero_bytes : 0;
  const int scale_bytes_of_warp = Stream::shared_bytes(w.scale.bytes, zero_size);
  const NarrowShared at = narrow_shared(table_bytes<Decoder>(), scale_bytes_of_warp, kTokens8 * 8,
                                        p.chunk_tiles, 0);
  const NarrowWork work = narrow_work(w, p, kWarps);
  constexpr int kSumFloats = kTokens8 * 8 * kSumStride;
  float* const sums = reinterpret_cast<float*>(shared + at.sums);
  const bool is_partial = p.splits > 1 || work.chunks > 1;
  float* const partial = is_partial ? reinterpret_cast<float*>(shared + at.partial) : nullptr;

  let_next_kernel_start();
  Stream stream(w, shared + at.scales + warp * scale_bytes_of_warp, lane);
  NarrowCursor<Stream::kDepth> next(work, p, warp);
  uint32_t codes[Stream::kDepth][Stream::kWords];
  {
    const Segment s = next.segment();
    stream.load_scales(s, 0);
#pragma unroll
    for (int i = 0; i < Stream::kDepth; ++i) {
      if (i < s.count) stream.load_codes(s, i, codes[i]);
    }
  }
  const Table table = fill_table<Decoder>(w, reinterpret_cast<uint32_t*>(shared));
  if (threadIdx.x < 4) {
    reinterpret_cast<uint32_t*>(shared + at.x + kTokens8 * 8 * at.x_stride)[threadIdx.x] = 0;
  }
  wait_for_previous_kernel();

  NarrowSums<Number, Decoder, kGroups, kTokens8> sum;
  int buffer = 0;
  int round_buffer = 0;
  for (int chunk = 0; chunk < work.chunks; ++chunk) {
    const int chunk_begin = chunk * p.chunk_tiles;
    const int chunk_tiles = min(p.chunk_tiles, work.tiles - chunk_begin);
    __syncthreads();  // nobody reads the chunk before
    stage_activations<Number>(a, shared + at.x, at.x_stride, token0, tokens,
                              (work.first_tile + chunk_begin) * kTileCols,
                              chunk_tiles * kTileCols);
    __syncthreads();
    for (int round = 0; round < work.rounds; ++round) {
      sum.clear();
      for (bool last = false; !last;) {
        const Segment s = next.segment();
        last = next.ends_item();
        const int x_tile = s.tile - next.chunk_begin();
        next.advance();
        const Segment ahead = next.segment();
        __syncwarp();  // all lanes are done with the buffer that is filled now
        stream.load_scales(ahead, buffer ^ 1);
        wait_copies<1>();
        __syncwarp();
        uint32_t x[kTokens8];
        uint32_t x_bytes[kTokens8];
#pragma unroll
        for (int n = 0; n < kTokens8; ++n) {
          const int token = n * 8 + lane % 8;
          const bool there = token < tokens;
          x_bytes[n] = there ? 64 : 0;
          x[n] = shared_address(shared + at.x) + (there ? token * at.x_stride + x_tile * 128 +
                                                              lane / 8 * 16
                                                        : kTokens8 * 8 * at.x_stride);
        }
#pragma unroll
        for (int i = 0; i < Stream::kDepth; ++i) {
          if (i < s.count) {
            sum.add_tile(stream, s, buffer, i, codes[i], table, x, x_bytes);
#pragma unroll
            for (int n = 0; n < kTokens8; ++n) x[n] += 2 * x_bytes[n];
          }
          if (i < ahead.count) stream.load_codes(ahead, i, codes[i]);
        }
        buffer ^= 1;
      }
      float* const round_sums = sums + round_buffer * kWarps * kSumFloats;
      sum.store(round_sums + warp * kSumFloats, lane, tokens);
      __syncthreads();
      end_round<Number>(a, p, work, round_sums, partial, round, chunk == 0, token0, tokens,
                        kSumFloats);
      if constexpr (narrow_round_buffers(kTokens8 * 8) == 2) {
        round_buffer ^= 1;
      } else {
        __syncthreads();
      }
    }
  }
  wait_copies<0>();
  if (!is_partial) return;
  __syncthreads();
  if (p.splits > 1) {
    cluster_arrive();
    cluster_wait();
  }
  end_cluster<Number>(a, p, work, partial, token0, tokens, kSumFloats);
  if (p.splits > 1) {  // nobody leaves while others read its sums
    cluster_arrive();
    cluster_wait();
  }
}

}  // namespace subbyte::cuda
