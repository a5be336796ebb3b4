#pragma once
// Many tokens, Hopper: the weights go from device memory to registers, become numbers there and
// enter the tensor cores from there (wgmma with operand A from registers); outputs are the rows of
// the product, tokens its columns. So no weight, packed or not, passes through shared memory.
//
//   warpgroup 0     one thread copies [kTokens][64] tiles of activations into a ring of kStages
//   warpgroups 1, 2 multiply: 64 * kStrips outputs each, by kTokens tokens
//
//             tokens ------>                 two blocks of a cluster have the same tokens: each
//   outputs   +-----------+                  copies one half of a tile to both
//   |  wg 1   |           |
//   v  wg 2   |           |                  scales are multiplied into the weights, which are
//             +-----------+                  rounded to 16 bits by that
//
// Blocks stay and take tile after tile; each sum is added up by one thread in the order of the
// inputs, so results do not depend on anything but the shape of the product.

#include <cstdint>

#include "kernels/cuda/device/epilogue.cuh"
#include "kernels/cuda/device/shared_sizes.h"
#include "kernels/cuda/device/weight_stream.cuh"
#include "kernels/cuda/device/wgmma.cuh"

namespace subbyte::cuda {

inline constexpr int kWideThreads = 384;

struct WideTile {
  int row_block;
  int token_block;
};

/// Tile `index` of this block's cluster: groups of token blocks, in them all rows, in them tokens.
__device__ __forceinline__ WideTile wide_tile(const WidePartition& p, int index, int rank) {
  const int row_pairs = p.row_blocks / p.cluster;
  const int whole = p.group * row_pairs;
  const int group = index / whole;
  const int first = group * p.group;
  const int width = min(p.group, p.token_blocks - first);
  const int rest = index - group * whole;
  return {rest / width * p.cluster + rank, first + rest % width};
}

/// A position in the ring of tiles of activations.
template <int kStages>
struct Ring {
  int stage = 0;
  int phase = 0;
  __device__ void next() {
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

/// The thread that copies activations.
template <int kTokens, int kStrips>
__device__ void copy_activations(const CUtensorMap& x, const WidePartition& p, int tiles,
                                 uint32_t shared, uint32_t full, uint32_t empty) {
  using Shape = WideShape<kTokens, kStrips>;
  const int rank = blockIdx.x % p.cluster;
  const int part = kTokens / p.cluster;
  const int count = p.row_blocks / p.cluster * p.token_blocks;
  Ring<Shape::kStages> ring;
  for (int i = blockIdx.x / p.cluster; i < count; i += gridDim.x / p.cluster) {
    const int token = wide_tile(p, i, rank).token_block * kTokens + rank * part;
    for (int tile = 0; tile < tiles; ++tile, ring.next()) {
      wait_barrier(empty + ring.stage * 8, ring.phase ^ 1);
      expect_bytes(full + ring.stage * 8, Shape::kTileBytes);
      copy_tile(shared + ring.stage * Shape::kTileBytes + rank * part * kTileCols * 2, x,
                tile * kTileCols, token, full + ring.stage * 8, (1 << p.cluster) - 1);
    }
  }
}

/// One warp's part of the product: kStrips strips, 64 rows apart, and all tokens of a tile.
template <class Number, class Decoder, int kGroups, int kTokens, int kStrips>
class WideWarp {
 public:
  using Shape = WideShape<kTokens, kStrips>;
  using Stream = WeightStream<Decoder, kGroups, Shape::kDepth>;
  static constexpr int kStepsPerGroup = kSteps / kGroups;

  __device__ WideWarp(const WeightArguments& w, const float* scale_values, uint8_t* shared,
                      int stream_size, int lane, const Table& table)
      : w_(w),
        stream_{make_stream(w, scale_values, shared, stream_size, lane)},
        table_(table),
        factor_(w.scale_factor) {}

  /// Asks for the first weights of strips first, first + 4, ...
  __device__ void begin(int first_strip) {
    first_strip_ = first_strip;
    buffer_ = 0;
    const uint8_t* from[kStrips];
#pragma unroll
    for (int j = 0; j < kStrips; ++j) {
      const Segment s = segment(j, 0);
      from[j] = stream_[j].codes_of(s);
      stream_[j].load_scales(s, 0);
    }
#pragma unroll
    for (int i = 0; i < Shape::kDepth; ++i) {
#pragma unroll
      for (int j = 0; j < kStrips; ++j) stream_[j].load_codes(from[j], i, i < w_.tiles);
    }
  }

  /// Multiplies all tiles. Every warp of the cluster arrives at `empty` of both blocks when it has
  /// read a tile of activations.
  __device__ void multiply(Ring<Shape::kStages>& ring, uint32_t shared, uint32_t full,
                           uint32_t empty, int cluster) {
    int before = -1;  // stage whose products may still be under way
    for (int tile = 0; tile < w_.tiles; tile += Shape::kDepth) {
      __syncwarp();
#pragma unroll
      for (int j = 0; j < kStrips; ++j) {
        stream_[j].load_scales(segment(j, tile + Shape::kDepth), buffer_ ^ 1);
      }
      wait_copies<kStrips * Stream::kPendingAtScales>();
      __syncwarp();
      const uint8_t* from[kStrips];
#pragma unroll
      for (int j = 0; j < kStrips; ++j) {
        stream_[j].prepare_scales(segment(j, tile), buffer_);
        from[j] = stream_[j].codes_of(segment(j, tile + Shape::kDepth));
      }
      __syncwarp();
#pragma unroll 1
      for (int i = 0; i < Shape::kDepth; ++i) {
        if (tile + i >= w_.tiles) break;
        wait_barrier(full + ring.stage * 8, ring.phase);
        multiply_tile(tile + i == 0, i, tile_descriptor(shared + ring.stage * Shape::kTileBytes),
                      before, empty, cluster);
        before = ring.stage;
        ring.next();
#pragma unroll
        for (int j = 0; j < kStrips; ++j) {
          stream_[j].load_codes(from[j], i, tile + Shape::kDepth + i < w_.tiles);
        }
      }
      buffer_ ^= 1;
    }
    wgmma_wait<0>();
    release(before, empty, cluster);
    wait_copies<0>();
  }

  /// Sum i of strip j: i = 4 (token / 8) + (row >= 8 ? 2 : 0) + token % 2.
  float sums[kStrips][kTokens / 2];

 private:
  struct Streams {
    Stream s[kStrips];
    __device__ Stream& operator[](int j) { return s[j]; }
  };
  static __device__ Streams make_stream(const WeightArguments& w, const float* scale_values,
                                        uint8_t* shared, int bytes, int lane) {
    if constexpr (kStrips == 1) {
      return {{Stream(w, scale_values, shared, lane)}};
    } else {
      return {
          {Stream(w, scale_values, shared, lane), Stream(w, scale_values, shared + bytes, lane)}};
    }
  }

  /// Rows beyond the matrix repeat its last strip; nobody stores them.
  __device__ Segment segment(int j, int tile) const {
    return {min(first_strip_ + 4 * j, w_.strips - 1), tile,
            max(0, min(Shape::kDepth, w_.tiles - tile))};
  }

  __device__ void release(int stage, uint32_t empty, int cluster) const {
    if (stage >= 0 && threadIdx.x % kLanes < cluster) {
      arrive_at_block(empty + stage * 8, threadIdx.x % kLanes);
    }
  }

  /// The products of two steps are under way while the weights of the next two are decoded.
  __device__ void multiply_tile(bool first, int slot, uint64_t b, int before, uint32_t empty,
                                int cluster) {
    typename Stream::Prepared prepared[kStrips];
    uint32_t scale[kStrips][2];
    uint32_t codes[kStrips][Stream::kWords];
    wait_copies<kStrips * Stream::kPendingAtTile>();
#pragma unroll
    for (int j = 0; j < kStrips; ++j) stream_[j].read_codes(slot, codes[j]);
#pragma unroll
    for (int step = 0; step < kSteps; step += 2) {
#pragma unroll
      for (int j = 0; j < kStrips; ++j) {
        decode(slot, step, j, codes[j], prepared[j], scale[j]);
        decode(slot, step + 1, j, codes[j], prepared[j], scale[j]);
      }
      wgmma_fence();
#pragma unroll
      for (int i = step; i < step + 2; ++i) {
#pragma unroll
        for (int j = 0; j < kStrips; ++j) {
          wgmma<Number, kTokens>(sums[j], a_[i][j], b + 2 * i, i > 0 || !first);
        }
      }
      wgmma_commit();
      wgmma_wait<1>();
      if (step == 0) release(before, empty, cluster);
    }
  }

  /// One step of one strip to a_[step][j].
  __device__ void decode(int slot, int step, int j, const uint32_t* codes,
                         typename Stream::Prepared& prepared, uint32_t (&scale)[2]) {
    if (step % kStepsPerGroup == 0) {
      prepared = stream_[j].prepared(slot, step / kStepsPerGroup);
      scale[0] = Number::pair_of_float(prepared.scales.x * factor_);
      scale[1] = Number::pair_of_float(prepared.scales.y * factor_);
    }
    decode_step<Decoder>(codes, step, prepared, table_, a_[step][j]);
#pragma unroll
    for (int r = 0; r < 4; ++r) a_[step][j][r] = Number::mul(a_[step][j][r], scale[r % 2]);
  }

  const WeightArguments& w_;
  Streams stream_;
  const Table& table_;
  const float factor_;
  int first_strip_ = 0;
  int buffer_ = 0;
  uint32_t a_[kSteps][kStrips][4];
};

/// Results of one warpgroup from [16 tokens][rows]. Not inlined: it is there for every 16 tokens.
template <class Number, int kStrips>
__device__ __noinline__ void finish_staged(const LinearArguments& a, const float* staged,
                                           int first_strip, int64_t token0) {
  constexpr int kStride = WideShape<128, kStrips>::kStagedStride;
  const float factor = 1 / a.weights.scale_factor;
  for (int i = threadIdx.x % 128; i < 16 * 4 * kStrips; i += 128) {
    const int strip = i % (4 * kStrips);
    const int token = i / (4 * kStrips);
    if (token0 + token >= a.m) continue;
    float values[kStripRows];
    const float4* from =
        reinterpret_cast<const float4*>(staged + token * kStride + strip * kStripRows);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float4 v = from[j];
      values[4 * j] = v.x * factor;
      values[4 * j + 1] = v.y * factor;
      values[4 * j + 2] = v.z * factor;
      values[4 * j + 3] = v.w * factor;
    }
    finish_strip<Number>(a, first_strip + strip, token0 + token, values);
  }
}

/// Results of one warpgroup, 16 tokens at a time through shared memory, so that neighbours in
/// memory are written together.
template <class Number, int kTokens, int kStrips>
__device__ void store_tile(const LinearArguments& a, const float (&sums)[kStrips][kTokens / 2],
                           float* staged, int group, int first_strip, int64_t first_token) {
  using Shape = WideShape<kTokens, kStrips>;
  const int thread = threadIdx.x % 128;
  const int lane = thread % kLanes;
  const int row = thread / kLanes * kStripRows + lane / 4;
#pragma unroll
  for (int part = 0; part < kTokens / Shape::kStagedTokens; ++part) {
    const int64_t token0 = first_token + part * Shape::kStagedTokens;
    if (token0 >= a.m) break;
    asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
#pragma unroll
    for (int j = 0; j < kStrips; ++j) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int token = i / 4 * 8 + lane % 4 * 2 + i % 2;
        staged[token * Shape::kStagedStride + j * 64 + row + i % 4 / 2 * 8] = sums[j][part * 8 + i];
      }
    }
    asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
    finish_staged<Number, kStrips>(a, staged, first_strip, token0);
  }
}

/// What a warpgroup that multiplies does: tile after tile.
template <class Number, class Decoder, int kGroups, int kTokens, int kStrips>
__device__ void multiply_tiles(const LinearArguments& a, const WidePartition& p,
                               const WideShared& at, uint8_t* shared, int stream_size,
                               const Table& table, uint32_t full, uint32_t empty) {
  using Shape = WideShape<kTokens, kStrips>;
  const int group = threadIdx.x / 128 - 1;
  const int warp = threadIdx.x / kLanes % 4;
  const int rank = blockIdx.x % p.cluster;
  const int count = p.row_blocks / p.cluster * p.token_blocks;
  const int step = gridDim.x / p.cluster;
  const auto first_strip_of = [&](int i) {
    return (wide_tile(p, i, rank).row_block * 2 + group) * 4 * kStrips;
  };
  WideWarp<Number, Decoder, kGroups, kTokens, kStrips> work(
      a.weights, reinterpret_cast<const float*>(shared + at.scale_values),
      shared + at.streams + (group * 4 + warp) * kStrips * stream_size, stream_size,
      threadIdx.x % kLanes, table);
  float* const staged = reinterpret_cast<float*>(shared + at.staged) +
                        group * Shape::kStagedTokens * Shape::kStagedStride;
  Ring<Shape::kStages> ring;
  int i = blockIdx.x / p.cluster;
  work.begin(first_strip_of(i) + warp);
  wait_for_previous_kernel();
  while (i < count) {
    const int strip = first_strip_of(i);
    const int64_t token = int64_t{wide_tile(p, i, rank).token_block} * kTokens;
    work.multiply(ring, shared_address(shared), full, empty, p.cluster);
    i += step;
    if (i < count) work.begin(first_strip_of(i) + warp);  // comes while these results go
    store_tile<Number, kTokens, kStrips>(a, work.sums, staged, group, strip, token);
  }
}

template <class Number, class Decoder, int kGroups, int kTokens, int kStrips>
__global__ void __launch_bounds__(kWideThreads, WideShape<kTokens, kStrips>::kBlocks)
    wide_kernel(const __grid_constant__ LinearArguments a, const __grid_constant__ WidePartition p,
                const __grid_constant__ CUtensorMap x) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // other GPUs have no wgmma, and the host does not choose this
  using Shape = WideShape<kTokens, kStrips>;
  extern __shared__ uint8_t unaligned[];
  uint8_t* const shared = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
  const WeightArguments& w = a.weights;
  const int zero_size = Decoder::kHasZeros && w.zeros != nullptr ? w.zero_bytes : 0;
  const int stream_size = stream_bytes(Shape::kDepth, Decoder::kBits, kGroups, w.scale.bytes,
                                       zero_size, Decoder::kHasZeros);
  const WideShared at = wide_shared<kTokens, kStrips>(table_bytes<Decoder>(), stream_size);
  const uint32_t full = shared_address(shared + at.barriers);
  const uint32_t empty = full + Shape::kStages * 8;

  let_next_kernel_start();
  if (threadIdx.x == 0) {
    for (int i = 0; i < Shape::kStages; ++i) {
      init_barrier(full + i * 8, 1);
      init_barrier(empty + i * 8, 8 * p.cluster);
    }
    publish_barriers();
  }
  fill_scale_values(reinterpret_cast<float*>(shared + at.scale_values), w.scale);
  const Table table = fill_table<Decoder>(w, reinterpret_cast<uint32_t*>(shared + at.table));
  __syncthreads();
  if (p.cluster > 1) wait_for_cluster();

  if (threadIdx.x < 128) {
    give_registers<Shape::kBlocks == 2 ? 24 : 40>();
    wait_for_previous_kernel();
    if (threadIdx.x == 0) {
      copy_activations<kTokens, kStrips>(x, p, w.tiles, shared_address(shared), full, empty);
    }
  } else {
    take_registers<Shape::kBlocks == 2 ? 104 : 232>();
    multiply_tiles<Number, Decoder, kGroups, kTokens, kStrips>(a, p, at, shared, stream_size, table,
                                                               full, empty);
  }
  if (p.cluster > 1) wait_for_cluster();  // nobody leaves while others write into its memory
#endif
}

}  // namespace subbyte::cuda
