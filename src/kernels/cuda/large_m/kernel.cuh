#pragma once
// large_m16 to large_m256: more than a few tokens, Hopper. Weights go from device memory through
// shared memory to registers, become 16-bit numbers there and are operand A of wgmma; outputs are
// the rows of the product, tokens its columns. Warp-specialized and persistent:
//
//   warpgroup 0     producer: one thread copies [kTokens][64] tiles of activations by TMA into a
//                   ring of kStages, of a tile or of as many as a batch of weights has, three warps
//                   copy packed weights into another (weights.cuh)
//   warpgroups 1, 2 consumers: 64 outputs each, by kTokens tokens
//
//             tokens ------>                 two CTAs of a cluster have the same tokens: each
//                                            copies
//   outputs   +-----------+                  one half of a tile to both (multicast)
//   |  wg 1   |           |
//   v  wg 2   |           |                  scales are multiplied into the weights, which are
//             +-----------+                  rounded to 16 bits by that
//
// Every stage of the activations has two mbarriers, and so has every slot of weights:
//
//   full    the producer expects the bytes, the copies count them; consumers wait for it
//   empty   every consumer warp, of all CTAs that share the tokens, arrives when it has read; the
//           producer waits for it before it copies into the stage again
//
// The parity of both is the ring's phase, which flips when the ring wraps; the producer waits for
// the opposite one, so that the first wait for each empty stage returns at once.
//
// Each output is accumulated by one thread in the order of the inputs, so results depend on the
// shape of the product alone. Where there are fewer output tiles than multiprocessors, the CTAs of
// a cluster share a tile, each with its part of K (split-K), and add their partials in their order
// (results.cuh). So they do with the tiles that are left after full waves of whole ones:
//
//   wave 0   tile 0 | tile 1 | tile 2 | tile 3      two clusters of two CTAs, six tiles, full_waves
//            1
//   wave 1   tile 4, halves  | tile 5, halves
//
// To read it: this file from the kernel at its end upwards, then weights.cuh and results.cuh.

#include <cstdint>

#include "kernels/cuda/common/cluster.cuh"
#include "kernels/cuda/common/prologue_epilogue.cuh"
#include "kernels/cuda/common/ptx.cuh"
#include "kernels/cuda/common/rows.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/large_m/partition.h"
#include "kernels/cuda/large_m/results.cuh"
#include "kernels/cuda/large_m/weights.cuh"

namespace subbyte::cuda {

/// What this CTA does: its place in its cluster, and the work items of its cluster.
struct LargeMCta {
  int row;    // among the CTAs that share tokens
  int part;   // of K, among the CTAs that share outputs
  int first;  // item of this cluster
  int stride;
  int count;  // of items
};

/// Without divisions, before which no copy can begin.
__device__ __forceinline__ LargeMCta large_m_cta(const LargeMPartition& p) {
  const int shift = p.multicast - 1;  // which is 1 or 2
  const int rank = cluster_ctarank();
  const int tiles = (p.tiles_n >> shift) * p.tiles_m;
  return {rank & shift, rank >> shift, clusterid(), nclusterid(),
          p.full_waves + tiles - p.full_waves * p.splits};
}

/// What a CTA does next: an output tile with K tiles begin to end - 1.
struct LargeMItem {
  int tile_n;
  int64_t first_token;
  int begin;
  int end;
  bool is_split;
};

/// The items of one matrix and all tokens. (Those of several matrices: experts/large_m.cuh.)
template <int kTokens>
class LargeMItems {
 public:
  __device__ LargeMItems(const LinearArguments& a, const LargeMPartition& p)
      : cta(large_m_cta(p)), a_(a), p_(p) {}

  __device__ bool has(int i) const { return i < cta.count; }

  /// Tiles are rasterized in stripes of swizzle_width along m: in a stripe all of n, for each of
  /// these all of m.
  __device__ LargeMItem item(int i) const {
    const bool is_split = i >= p_.full_waves && p_.splits > 1;
    const int index =
        i < p_.full_waves ? i * p_.splits + cta.part : i + p_.full_waves * (p_.splits - 1);
    int first = 0;
    int width = p_.tiles_m;
    int in_stripe = index;
    if (p_.tiles_m > p_.swizzle_width) {
      const int stripe_tiles = p_.swizzle_width * (p_.tiles_n >> (p_.multicast - 1));
      const int stripe = index / stripe_tiles;
      first = stripe * p_.swizzle_width;
      width = min(p_.swizzle_width, p_.tiles_m - first);
      in_stripe = index - stripe * stripe_tiles;
    }
    const int cluster_n = width == 1 ? in_stripe : in_stripe / width;
    const int begin = is_split ? p_.k_tiles.begin(cta.part) : 0;
    return {cluster_n * p_.multicast + cta.row,
            int64_t{first + in_stripe - cluster_n * width} * kTokens, begin,
            is_split ? begin + p_.k_tiles.size(cta.part) : a_.weights.tiles, is_split};
  }

  /// Bytes from the weights of the arguments to those of item `i`.
  __device__ int64_t weight_offset(int) const { return 0; }

  /// For results of item `i`, by the threads of a consumer warpgroup.
  __device__ const LinearArguments& arguments(int, int) const { return a_; }
  __device__ OwnRows rows() const { return {}; }

  const LargeMCta cta;

 private:
  const LinearArguments& a_;
  const LargeMPartition& p_;
};

/// A position in the ring of activations.
template <int kStages>
struct ActivationRing {
  int stage = 0;
  int phase = 0;
  __device__ void next() {
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

/// K tiles of the stage that begins with `tile`.
template <class Decoder, class Shape>
__device__ __forceinline__ int tiles_of_stage(int tile, int end) {
  if constexpr (Shape::kStageTiles == 1) {
    return 1;
  } else {
    return tiles_of_batch<Decoder, Shape::kStageTiles>(tile, end);
  }
}

/// The thread that copies activations.
template <class Decoder, int kTokens>
class ActivationProducer {
 public:
  using Shape = LargeMShape<kTokens>;

  /// `shared`: address of the ring; `full`: of its barriers.
  __device__ ActivationProducer(const CUtensorMap& x, const LargeMPartition& p,
                                const LargeMCta& cta, uint32_t shared, uint32_t full)
      : x_(x),
        first_(cta.row * p.copied_tokens),
        to_(shared + first_ * kTileCols * 2),
        full_(full),
        bytes_(p.copied_tokens * p.multicast * kTileCols * 2),
        multicast_(p.multicast > 1),
        ctas_(((1 << p.multicast) - 1) << cta.part * p.multicast) {}

  /// The K tiles of this CTA's share of the tokens.
  __device__ void copy(const LargeMItem& item) {
    const int token = static_cast<int>(item.first_token) + first_;
#pragma unroll 1
    for (int tile = item.begin, tiles = 0; tile < item.end; tile += tiles, ring_.next()) {
      tiles = tiles_of_stage<Decoder, Shape>(tile, item.end);
      const uint32_t full = full_ + ring_.stage * 8;
      const uint32_t empty = full + Shape::kStages * 8;
      const uint32_t to = to_ + ring_.stage * Shape::kStageBytes;
      mbarrier_wait(empty, ring_.phase ^ 1);
      mbarrier_arrive_expect_tx(full, tiles * bytes_);
#pragma unroll 1
      for (int i = 0; i < tiles; ++i) {
        tma_load_2d(to + i * Shape::kTileBytes, x_, (tile + i) * kTileCols, token, full, ctas_,
                    multicast_);
      }
    }
  }

 private:
  const CUtensorMap& x_;
  const int first_;  // of the share
  const uint32_t to_;
  const uint32_t full_;
  const int bytes_;  // of a tile, from all CTAs that share it
  const bool multicast_;
  const int ctas_;  // a bit for each that gets the tokens
  ActivationRing<Shape::kStages> ring_;
};

/// What the producer warpgroup does. While CTAs exchange partials, the ring of activations is
/// theirs.
template <class Products, class Items>
__device__ void produce(const WeightArguments& w, const LargeMPartition& p,
                        const typename Products::Maps& maps, const Items& items, uint32_t shared,
                        uint32_t weights, uint32_t full, const WeightRing& ring) {
  const LargeMCta& cta = items.cta;
  typename Products::Activations activations(maps, p, cta, shared, full);
  auto copies = Products::copies(w, maps, weights, ring);
  if (threadIdx.x == 0) griddepcontrol_wait();  // weights do not come from the kernel before
  for (int i = cta.first; items.has(i); i += cta.stride) {
    const LargeMItem item = items.item(i);
    if (threadIdx.x == 0) activations.copy(item);
    const int warp = threadIdx.x / kLanes;
    if (warp >= 1) copies.copy(warp - 1, items.weight_offset(i), item.tile_n, item.begin, item.end);
    if (item.is_split) wait_for_exchange();
  }
}

/// A consumer warp: 16 outputs by all tokens of a tile.
template <class Number, class Decoder, int kGroups, int kTokens>
class ConsumerWarp {
 public:
  using Shape = LargeMShape<kTokens>;
  using Weights = WeightConsumer<Number, Decoder, kGroups>;

  /// Of part `part` of K. `shared`: the ring of activations; `full`: its barriers.
  __device__ ConsumerWarp(const LargeMPartition& p, int part, const CUtensorMap&,
                          const Weights& weights, uint32_t shared, uint32_t full)
      : weights_(weights),
        first_stage_(keep_in_register(static_cast<uint32_t>(wgmma_descriptor(shared)))),
        full_(keep_in_register(full)),
        releases_(lane_in_register() < p.multicast),
        empty_(keep_in_register(mapa(full + Shape::kStages * 8,
                                     part * p.multicast + threadIdx.x % kLanes % p.multicast))) {}

  /// Multiplies the K tiles of an item. Every warp of the CTAs that share tokens arrives at the
  /// empty barriers of them all when it has read a stage of activations.
  __device__ void multiply(const LargeMItem& item) {
    weights_.begin_item();
    empty_of_item_ = pinned(empty_);
    before_ = -1;
#pragma unroll
    for (float& sum : accumulators) sum = 0;
    weights_.wait_for_batch();
    weights_.load_batch(item.begin);
#pragma unroll 1
    for (int tile = item.begin, tiles = 0; tile < item.end; tile += tiles) {
      tiles = tiles_of_batch<Decoder, kBatch>(tile, item.end);
      const int slot = weights_.next_slot();
      weights_.begin_batch();
      weights_.load_tile(0);
      if (kUnrolls && tiles == kBatch) {
#pragma unroll
        for (int i = 0; i + 1 < kBatch; ++i) {
          multiply_tile(i, false, false, [&] { weights_.load_tile(i + 1); });
        }
        multiply_tile(kBatch - 1, true, tile + kBatch < item.end,
                      [&] { weights_.load_batch(tile + kBatch); });
      } else {
#pragma unroll 1
        for (int i = 0; i + 1 < tiles; ++i) {
          multiply_tile(i, false, false, [&] { weights_.load_tile(i + 1); });
        }
        multiply_tile(tiles - 1, true, tile + tiles < item.end,
                      [&] { weights_.load_batch(tile + tiles); });
      }
      weights_.release(slot);
    }
    wgmma_wait<0>();
    release();
  }

  /// Accumulator i = 4 (token / 8) + (row >= 8 ? 2 : 0) + token % 2.
  float accumulators[kTokens / 2];

 private:
  static constexpr int kBatch = Weights::kBatch;
  static constexpr int kStageTiles = Shape::kStageTiles;
  static_assert(kStageTiles == 1 || kStageTiles == kBatch);
  /// Tiles of a batch one after the other, where what a tile takes beside its products counts.
  static constexpr bool kUnrolls = kStageTiles > 1;

  /// The producers may fill the stage before, if there is one. A lane arrives for each CTA.
  __device__ void release() const {
    if (before_ >= 0 && releases_) mbarrier_arrive_cluster(empty_of_item_ + before_ * 8);
  }

  /// Tile `tile` of a batch. The products of two steps are in flight while the weights of the next
  /// two are decoded, also from one tile to the next. `waits`: for the next batch.
  template <class LoadNext>
  __device__ __forceinline__ void multiply_tile(int tile, bool is_last, bool waits,
                                                const LoadNext& load_next) {
    const int in_stage = tile % kStageTiles;
    uint32_t codes[Weights::kWords];
    typename Weights::Group group = weights_.take_tile(codes);
    const uint32_t low = first_stage_ + ring_.stage * (Shape::kStageBytes >> 4) +
                         in_stage * (Shape::kTileBytes >> 4);
    const uint64_t b = (wgmma_descriptor(0) >> 32 << 32) | low;
#pragma unroll
    for (int step = 0; step < kSteps; step += 2) {
      wgmma_wait<1>();  // the products that read the registers of these steps are done
      if (step == 2) {
        if (in_stage == 0) release();
        load_next();
      }
#pragma unroll
      for (int i = step; i < step + 2; ++i) {
        constexpr int kStepsPerGroup = Weights::kStepsPerGroup;
        if (i > 0 && i % kStepsPerGroup == 0) group = weights_.group(tile, i / kStepsPerGroup);
        weights_.decode(codes, i, group, a_[i]);
      }
      if (step == 0 && waits) weights_.wait_for_batch();
      if (step == 0 && in_stage == 0) mbarrier_wait(full_ + ring_.stage * 8, ring_.phase);
      wgmma_fence();
#pragma unroll
      for (int i = step; i < step + 2; ++i) {
        wgmma<Number, kTokens>(accumulators, a_[i], b + 2 * i, 1);
      }
      wgmma_commit();
    }
    if (is_last || in_stage + 1 == kStageTiles) {
      before_ = ring_.stage;
      ring_.next();
    }
  }

  Weights weights_;
  const uint32_t first_stage_;  // low half of its descriptor
  const uint32_t full_;         // barriers, each 8 bytes, in this CTA
  const bool releases_;
  const uint32_t empty_;    // in a CTA that shares tokens, for each lane another
  uint32_t empty_of_item_;  // the same
  ActivationRing<Shape::kStages> ring_;
  int before_;  // stage whose products may still be in flight, or -1
  uint32_t a_[kSteps][4];
};

/// Products of 16-bit numbers, which weights of any kind become.
template <class NumberOf, class DecoderOf, int kGroupsOf, int kTokensOf>
struct ProductsIn16Bits {
  using Number = NumberOf;  // of the results
  using Decoder = DecoderOf;
  static constexpr int kGroups = kGroupsOf;
  static constexpr int kTokens = kTokensOf;
  static constexpr int kBatch = weight_batch(Decoder::kBits);
  using Shape = LargeMShape<kTokens>;
  using Maps = CUtensorMap;
  using Activations = ActivationProducer<Decoder, kTokens>;
  using Warp = ConsumerWarp<Number, Decoder, kGroups, kTokens>;

  /// By all threads.
  static __device__ void fill(uint8_t* shared, const LargeMShared& at, const WeightArguments& w,
                              const Maps&) {
    fill_scale_values(reinterpret_cast<float*>(shared + at.scale_values), w.scale);
  }
  static __device__ WeightProducer<Decoder, kGroups, kBatch> copies(const WeightArguments& w,
                                                                    const Maps&, uint32_t to,
                                                                    const WeightRing& ring) {
    return {w, to, ring};
  }
  static __device__ typename Warp::Weights weights(const WeightArguments& w, const Table& table,
                                                   uint8_t* shared, const LargeMShared& at,
                                                   const WeightRing& ring, int warp) {
    return {w,
            table,
            reinterpret_cast<const float*>(shared + at.scale_values),
            shared_address(shared + at.weights),
            ring,
            warp};
  }
};

/// What a consumer warpgroup does: item after item.
template <class Products, class Items>
__device__ void consume(const LinearArguments& a, const LargeMPartition& p,
                        const typename Products::Maps& maps, const Items& items,
                        const LargeMShared& at, uint8_t* shared, const Table& table, uint32_t full,
                        const WeightRing& ring) {
  using Number = typename Products::Number;
  using Warp = typename Products::Warp;
  const int warpgroup = threadIdx.x / 128 - 1;  // of the consumers
  const LargeMCta& cta = items.cta;
  const auto weights =
      Products::weights(a.weights, table, shared, at, ring, threadIdx.x / kLanes - 4);
  Warp work(p, cta.part, maps, weights, shared_address(shared), full);
  const Results<Products::kTokens> results(shared + at.staged, warpgroup);
  const Exchange exchange(p, cta.part, cta.row, shared_address(shared));
  griddepcontrol_wait();
  for (int i = cta.first; items.has(i); i += cta.stride) {
    const LargeMItem item = items.item(i);
    work.multiply(item);
    const LinearArguments& of_item = items.arguments(i, warpgroup);
    const int strip = (item.tile_n * 2 + warpgroup) * 4;
    if (item.is_split) {
      exchange.put_partials(work.accumulators);
      results.template store_reduced<Number>(of_item, items.rows(), exchange, strip,
                                             item.first_token);
    } else {
      results.template store<Number>(of_item, items.rows(), work.accumulators, strip,
                                     item.first_token);
    }
  }
}

/// By one thread; all have to synchronize before they use them.
template <int kStages>
__device__ void init_mbarriers(const LargeMPartition& p, uint32_t full, const WeightRing& ring) {
  constexpr int kConsumerWarps = 8;
  for (int i = 0; i < kStages; ++i) {
    mbarrier_init(full + i * 8, 1);
    mbarrier_init(full + (kStages + i) * 8, kConsumerWarps * p.multicast);
  }
  for (int i = 0; i < ring.slots; ++i) {
    mbarrier_init(ring.full + i * 8, 1);
    mbarrier_init(ring.empty + i * 8, kConsumerWarps);
  }
  fence_mbarrier_init();
}

/// The kernel, whatever its items are. `unaligned`: its shared memory.
template <class Products, class Items>
__device__ __forceinline__ void run_large_m(const LinearArguments& a, const LargeMPartition& p,
                                            const typename Products::Maps& maps, const Items& items,
                                            uint8_t* unaligned) {
  using Decoder = typename Products::Decoder;
  using Shape = typename Products::Shape;
  uint8_t* const shared = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
  const WeightArguments& w = a.weights;
  const LargeMShared at = large_m_shared<Shape>(
      table_bytes<Decoder>(), stream_sizes<Decoder, Products::kGroups, Products::kBatch>(w).stream,
      p.weight_slots);
  const uint32_t full = shared_address(shared + at.barriers);
  const uint32_t full_weights = full + 2 * Shape::kStages * 8;
  const WeightRing ring = {full_weights, full_weights + Shape::kWeightSlots * 8, p.weight_slots};

  // --- barriers and tables ---
  griddepcontrol_launch_dependents();
  if (threadIdx.x == 0) init_mbarriers<Shape::kStages>(p, full, ring);
  Products::fill(shared, at, w, maps);
  const Table table = fill_table<Decoder>(w, reinterpret_cast<uint32_t*>(shared + at.table));
  __syncthreads();
  if (p.multicast > 1) cluster_sync_relaxed();  // after the fence of init_mbarriers()

  // --- the warpgroups part; registers go from the producer to the consumers ---
  if (threadIdx.x < 128) {
    setmaxnreg_dec<40>();
    produce<Products>(w, p, maps, items, shared_address(shared),
                      shared_address(shared + at.weights), full, ring);
    __syncwarp();
  } else {
    setmaxnreg_inc<232>();
    consume<Products>(a, p, maps, items, at, shared, table, full, ring);
  }
  if (p.multicast > 1) cluster_sync();  // a CTA must not leave while others write into its memory
}

template <class Number, class Decoder, int kGroups, int kTokens>
__global__ void __launch_bounds__(kLargeMThreads, 1)
    large_m_kernel(const __grid_constant__ LinearArguments a,
                   const __grid_constant__ LargeMPartition p,
                   const __grid_constant__ CUtensorMap x) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // other GPUs have no wgmma, and the host does not choose this
  extern __shared__ uint8_t shared[];
  if (threadIdx.x == 0) prefetch_tensor_map(x);
  run_large_m<ProductsIn16Bits<Number, Decoder, kGroups, kTokens>>(
      a, p, x, LargeMItems<kTokens>(a, p), shared);
#endif
}

}  // namespace subbyte::cuda
