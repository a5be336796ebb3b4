#pragma once
// Many tokens, Hopper: the weights go from device memory to registers, become numbers there and
// enter the tensor cores from there (wgmma with operand A from registers); outputs are the rows of
// the product, tokens its columns.
//
//   warpgroup 0     one thread copies [kTokens][64] tiles of activations into a ring of kStages,
//                   one warp copies packed weights into another (large_m/weights.cuh)
//   warpgroups 1, 2 multiply: 64 outputs each, by kTokens tokens
//
//             tokens ------>                 two blocks of a cluster have the same tokens: each
//   outputs   +-----------+                  copies one half of a tile to both
//   |  wg 1   |           |
//   v  wg 2   |           |                  scales are multiplied into the weights, which are
//             +-----------+                  rounded to 16 bits by that
//
// Blocks stay and take tile after tile; each sum is added up by one thread in the order of the
// inputs, so results do not depend on anything but the shape of the product. Where there are fewer
// tiles than multiprocessors, several blocks share one, each with its part of the inputs, and add
// their sums in their order (large_m/results.cuh). So they do with the tiles that are left when all
// multiprocessors have had the same number of whole ones:
//
//   round 0   tile 0 | tile 1 | tile 2 | tile 3      two clusters of two blocks, six tiles
//   round 1   tile 4, halves  | tile 5, halves

#include <cstdint>

#include "kernels/cuda/common/prologue_epilogue.cuh"
#include "kernels/cuda/common/ptx.cuh"
#include "kernels/cuda/large_m/partition.h"
#include "kernels/cuda/large_m/results.cuh"
#include "kernels/cuda/large_m/weights.cuh"

namespace subbyte::cuda {

/// What this block does: its place in its cluster, and the tiles of its cluster.
struct LargeMBlock {
  int row;    // among the blocks that share tokens
  int part;   // among those that share outputs
  int first;  // item of this cluster
  int step;
  int count;  // of items
};

__device__ __forceinline__ LargeMBlock large_m_block(const LargeMPartition& p) {
  const int blocks = p.multicast * p.splits;
  const int rank = blockIdx.x % blocks;
  const int part = rank / p.multicast;
  const int tiles = p.tiles_n / p.multicast * p.tiles_m;
  return {rank - part * p.multicast, part, static_cast<int>(blockIdx.x) / blocks,
          static_cast<int>(gridDim.x) / blocks, p.full_waves + tiles - p.full_waves * p.splits};
}

/// What a block does next: a tile of the product, or a part of its inputs, in tiles.
struct LargeMItem {
  int row_block;
  int token_block;
  int begin;
  int end;
  bool is_split;
};

/// Item `i`. Tiles come in groups of token blocks, in them all rows, in them tokens.
__device__ __forceinline__ LargeMItem large_m_item(const LargeMPartition& p,
                                                   const LargeMBlock& block, int tiles, int i) {
  const bool is_split = i >= p.full_waves && p.splits > 1;
  const int index =
      i < p.full_waves ? i * p.splits + block.part : i + p.full_waves * (p.splits - 1);
  const int row_groups = p.tiles_n / p.multicast;
  const int whole = p.swizzle_width * row_groups;
  const int group = index / whole;
  const int first = group * p.swizzle_width;
  const int width = min(p.swizzle_width, p.tiles_m - first);
  const int rest = index - group * whole;
  const int begin = is_split ? p.k_tiles.begin(block.part) : 0;
  return {rest / width * p.multicast + block.row, first + rest % width, begin,
          is_split ? begin + p.k_tiles.size(block.part) : tiles, is_split};
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
template <int kTokens>
class ActivationCopies {
 public:
  using Shape = LargeMShape<kTokens>;

  /// `shared`: address of the ring; `full`: of its barriers.
  __device__ ActivationCopies(const CUtensorMap& x, const LargeMPartition& p,
                              const LargeMBlock& block, uint32_t shared, uint32_t full)
      : x_(x),
        to_(shared + block.row * (kTokens / p.multicast) * kTileCols * 2),
        full_(full),
        several_(p.multicast > 1),
        blocks_(((1 << p.multicast) - 1) << block.part * p.multicast) {}

  /// Tiles begin to end - 1 of this block's share of the tokens, whose first is `token`.
  __device__ void copy(int token, int begin, int end) {
#pragma unroll 1
    for (int tile = begin; tile < end; ++tile, ring_.next()) {
      const uint32_t full = full_ + ring_.stage * 8;
      mbarrier_wait(full + Shape::kStages * 8, ring_.phase ^ 1);
      mbarrier_arrive_expect_tx(full, Shape::kTileBytes);
      tma_load_2d(to_ + ring_.stage * Shape::kTileBytes, x_, tile * kTileCols, token, full, blocks_,
                  several_);
    }
  }

 private:
  const CUtensorMap& x_;
  const uint32_t to_;
  const uint32_t full_;
  const bool several_;
  const int blocks_;  // a bit for each that gets the tokens
  Ring<Shape::kStages> ring_;
};

/// What the warpgroup that copies does. While blocks exchange sums, the ring of activations is not
/// its own.
template <class Decoder, int kGroups, int kTokens>
__device__ void copy_tiles(const WeightArguments& w, const LargeMPartition& p, const CUtensorMap& x,
                           uint32_t shared, uint32_t weights, uint32_t full,
                           const WeightRing& ring) {
  const LargeMBlock block = large_m_block(p);
  ActivationCopies<kTokens> activations(x, p, block, shared, full);
  WeightCopies<Decoder, kGroups> copies(w, weights, ring);
  if (threadIdx.x == 0) griddepcontrol_wait();  // which weights do not come from
  for (int i = block.first; i < block.count; i += block.step) {
    const LargeMItem item = large_m_item(p, block, w.tiles, i);
    if (threadIdx.x == 0) {
      activations.copy(item.token_block * kTokens + block.row * (kTokens / p.multicast), item.begin,
                       item.end);
    }
    if (threadIdx.x / kLanes == 1) copies.copy(item.row_block, item.begin, item.end);
    if (item.is_split) lend_ring();
  }
}

/// One warp's part of the product: a strip, and all tokens of a tile.
template <class Number, class Decoder, int kGroups, int kTokens>
class LargeMWarp {
 public:
  using Shape = LargeMShape<kTokens>;
  using Weights = LargeMWeights<Number, Decoder, kGroups>;

  /// Of part `part` of the inputs. `shared`: the ring of activations; `full`: its barriers.
  __device__ LargeMWarp(const LargeMPartition& p, int part, const Weights& weights, uint32_t shared,
                        uint32_t full)
      : weights_(weights),
        first_stage_(keep_in_register(static_cast<uint32_t>(wgmma_descriptor(shared)))),
        full_(keep_in_register(full)),
        releases_(threadIdx.x % kLanes < p.multicast),
        empty_(keep_in_register(mapa(full + Shape::kStages * 8,
                                     part * p.multicast + threadIdx.x % kLanes % p.multicast))) {}

  /// Multiplies tiles begin to end - 1 of the inputs. Every warp of the blocks that share tokens
  /// arrives at the barriers of them all when it has read a tile of activations.
  __device__ void multiply(int begin, int end) {
    int before = -1;  // stage whose products may still be under way
    for (int tile = begin; tile < end; tile += kWeightBatch) {
      const int tiles = min(kWeightBatch, end - tile);
      weights_.begin_batch(tile);
#pragma unroll 1
      for (int i = 0; i < tiles; ++i) {
        multiply_tile(i, before);
        before = ring_.stage;
        ring_.next();
      }
      weights_.end_batch();
    }
    wgmma_wait<0>();
    release(before);
  }

  /// Sum i = 4 (token / 8) + (row >= 8 ? 2 : 0) + token % 2.
  float sums[kTokens / 2];

 private:
  /// The ring may fill stage `stage`, if it is one. A lane arrives for each block.
  __device__ void release(int stage) const {
    if (stage >= 0 && releases_) mbarrier_arrive_cluster(empty_ + stage * 8);
  }

  /// The products of two steps are under way while the weights of the next two are decoded, also
  /// from one tile to the next: `before` is the stage of the last one, or -1.
  __device__ void multiply_tile(int tile, int before) {
    typename Weights::Group group;
    uint32_t codes[Weights::kWords];
    weights_.read_codes(tile, codes);
    const uint64_t b =
        (wgmma_descriptor(0) >> 32 << 32) | (first_stage_ + ring_.stage * (Shape::kTileBytes >> 4));
#pragma unroll
    for (int step = 0; step < kSteps; step += 2) {
      wgmma_wait<1>();  // registers of these steps
      if (step == 2) release(before);
#pragma unroll
      for (int i = step; i < step + 2; ++i) {
        constexpr int kStepsPerGroup = Weights::kStepsPerGroup;
        if (i % kStepsPerGroup == 0) group = weights_.group(tile, i / kStepsPerGroup);
        weights_.decode(codes, i, group, a_[i]);
      }
      if (step == 0) mbarrier_wait(full_ + ring_.stage * 8, ring_.phase);
      wgmma_fence();
#pragma unroll
      for (int i = step; i < step + 2; ++i) {
        wgmma<Number, kTokens>(sums, a_[i], b + 2 * i, i > 0 || before >= 0);
      }
      wgmma_commit();
    }
  }

  Weights weights_;
  const uint32_t first_stage_;  // low half of its descriptor
  const uint32_t full_;         // barriers, each 8 bytes, in this block
  const bool releases_;
  const uint32_t empty_;  // in a block that shares tokens, for each lane another
  Ring<Shape::kStages> ring_;
  uint32_t a_[kSteps][4];
};

/// What a warpgroup that multiplies does: tile after tile.
template <class Number, class Decoder, int kGroups, int kTokens>
__device__ void multiply_tiles(const LinearArguments& a, const LargeMPartition& p,
                               const LargeMShared& at, uint8_t* shared, const Table& table,
                               uint32_t full, const WeightRing& ring) {
  const int group = threadIdx.x / 128 - 1;
  const LargeMBlock block = large_m_block(p);
  using Warp = LargeMWarp<Number, Decoder, kGroups, kTokens>;
  const typename Warp::Weights weights(
      a.weights, table, reinterpret_cast<const float*>(shared + at.scale_values),
      shared_address(shared + at.weights), ring, threadIdx.x / kLanes - 4);
  Warp work(p, block.part, weights, shared_address(shared), full);
  const Results<kTokens> results(a, reinterpret_cast<float*>(shared + at.staged), group);
  const Exchange exchange(p, block.part, block.row, shared_address(shared));
  griddepcontrol_wait();
  for (int i = block.first; i < block.count; i += block.step) {
    const LargeMItem item = large_m_item(p, block, a.weights.tiles, i);
    work.multiply(item.begin, item.end);
    const int strip = (item.row_block * 2 + group) * 4;
    const int64_t token = int64_t{item.token_block} * kTokens;
    if (item.is_split) {
      exchange.put_sums(work.sums);
      results.template store_shared<Number>(exchange, strip, token);
    } else {
      results.template store<Number>(work.sums, strip, token);
    }
  }
}

/// By one thread; all have to wait before they use them.
template <int kTokens>
__device__ void init_mbarriers(const LargeMPartition& p, uint32_t full, const WeightRing& ring) {
  constexpr int kStages = LargeMShape<kTokens>::kStages;
  for (int i = 0; i < kStages; ++i) {
    mbarrier_init(full + i * 8, 1);
    mbarrier_init(full + (kStages + i) * 8, 8 * p.multicast);
  }
  for (int i = 0; i < ring.slots; ++i) {
    mbarrier_init(ring.full + i * 8, 1);
    mbarrier_init(ring.empty + i * 8, 8);
  }
  fence_mbarrier_init();
}

template <class Number, class Decoder, int kGroups, int kTokens>
__global__ void __launch_bounds__(kLargeMThreads, LargeMShape<kTokens>::kCtasPerMultiprocessor)
    large_m_kernel(const __grid_constant__ LinearArguments a,
                   const __grid_constant__ LargeMPartition p,
                   const __grid_constant__ CUtensorMap x) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // other GPUs have no wgmma, and the host does not choose this
  using Shape = LargeMShape<kTokens>;
  extern __shared__ uint8_t unaligned[];
  uint8_t* const shared = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
  const WeightArguments& w = a.weights;
  const LargeMShared at = large_m_shared<kTokens>(
      table_bytes<Decoder>(), large_m_sizes<Decoder, kGroups>(w).stream, p.weight_slots);
  const uint32_t full = shared_address(shared + at.barriers);
  const uint32_t full_weights = full + 2 * Shape::kStages * 8;
  const WeightRing ring = {full_weights, full_weights + kMostWeightSlots * 8, p.weight_slots};

  griddepcontrol_launch_dependents();
  if (threadIdx.x == 0) init_mbarriers<kTokens>(p, full, ring);
  fill_scale_values(reinterpret_cast<float*>(shared + at.scale_values), w.scale);
  const Table table = fill_table<Decoder>(w, reinterpret_cast<uint32_t*>(shared + at.table));
  __syncthreads();
  if (p.multicast > 1) cluster_sync();

  if (threadIdx.x < 128) {
    setmaxnreg_dec<Shape::kCtasPerMultiprocessor == 2 ? 32 : 40>();
    copy_tiles<Decoder, kGroups, kTokens>(w, p, x, shared_address(shared),
                                          shared_address(shared + at.weights), full, ring);
    __syncwarp();
  } else {
    setmaxnreg_inc<Shape::kCtasPerMultiprocessor == 2 ? 104 : 232>();
    multiply_tiles<Number, Decoder, kGroups, kTokens>(a, p, at, shared, table, full, ring);
  }
  if (p.multicast > 1) cluster_sync();  // nobody leaves while others write into its memory
#endif
}

}  // namespace subbyte::cuda
