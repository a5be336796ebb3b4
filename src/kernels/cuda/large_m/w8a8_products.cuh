#pragma once
// large_m128 with products in E4M3, on the tensor cores for 8 bits: weights in E4M3 with a scale
// for each 128 inputs of a row, which may be those of blocks of 128 x 128, by activations in E4M3
// with a factor for each 128 inputs of a token.
//
// A tensor core for 8 bits cuts what it adds 13 bits below the largest of it, so it adds 128 inputs
// alone, four wgmma with 32 each. Their sum is multiplied by factor and scale and added in float32
// while the other warpgroup has the tensor cores:
//
//   warpgroup 1   | 4 wgmma | multiply, add | 4 wgmma | multiply, add |
//   warpgroup 2             | 4 wgmma | multiply, add | 4 wgmma | ...
//
// Sums and totals of 64 outputs by 128 tokens are 128 registers of a thread; 256 tokens have no
// room for both.
//
// Inputs have the order that decoding is short in, that of w4a8_products.cuh: of each 16 inputs
// byte 4 t + j of a row of activations is input 2 t + j / 2 + 8 (j % 2), as quantize_groups()
// writes them. So codes become operand A by a PRMT for four of them.
//
// A stage of the ring of activations has 128 inputs, and so has a slot of weights, which two copies
// bring by tensor maps: a copy for each strip and kind of bytes, of 64 and 2,048, took longer than
// the products.
//
//   slot   [strip, one for each consumer warp] codes of 2 tiles | [strip] scales
//
// Where all rows of a strip have one scale, as in blocks of 128 x 128, a factor is multiplied by it
// once for both rows of a lane.

#include "kernels/cuda/large_m/kernel.cuh"

namespace subbyte::cuda {

/// Factors of activations: [cols / 128][stride], of tokens; stride is a multiple of 128.
struct ActivationFactors {
  const float* factors;
  int64_t stride;
};

struct MapsOfBlocks {
  const CUtensorMap& codes;  // of activations, [tokens][inputs]
  const ActivationFactors& factors;
  const CUtensorMap& weights;  // describe_strips() of codes, two tiles
  const CUtensorMap& scales;   // of a scale block
};

/// The thread that copies activations, as ActivationProducer. Factors of all tokens are copied by
/// each CTA, which has half of them more than it needs to with multicast, but 512 bytes.
class ProducerOfBlocks {
 public:
  using Shape = LargeMBlockShape;

  __device__ ProducerOfBlocks(const MapsOfBlocks& maps, const LargeMPartition& p,
                              const LargeMCta& cta, uint32_t shared, uint32_t full)
      : maps_(maps),
        first_(cta.row * (Shape::kTokens / p.multicast)),
        to_(shared + first_ * (Shape::kBatch * kTileCols)),
        to_factors_(shared + Shape::kStages * Shape::kTileBytes),
        full_(full),
        multicast_(p.multicast > 1),
        ctas_(((1 << p.multicast) - 1) << cta.part * p.multicast) {}

  __device__ void copy(const LargeMItem& item) {
    const int token = static_cast<int>(item.first_token) + first_;
    const ActivationFactors& factors = maps_.factors;
#pragma unroll 1
    for (int tile = item.begin; tile < item.end; tile += Shape::kBatch, ring_.next()) {
      const uint32_t full = full_ + ring_.stage * 8;
      mbarrier_wait(full + Shape::kStages * 8, ring_.phase ^ 1);
      mbarrier_arrive_expect_tx(full, Shape::kTileBytes + Shape::kFactorBytes);
      cp_async_bulk(to_factors_ + ring_.stage * Shape::kFactorBytes,
                    factors.factors + tile / Shape::kBatch * factors.stride + item.first_token,
                    Shape::kFactorBytes, full);
      tma_load_2d(to_ + ring_.stage * Shape::kTileBytes, maps_.codes, tile * kTileCols, token, full,
                  ctas_, multicast_);
    }
  }

 private:
  const MapsOfBlocks& maps_;
  const int first_;  // of the tokens that this CTA copies, in a stage
  const uint32_t to_;
  const uint32_t to_factors_;
  const uint32_t full_;
  const bool multicast_;
  const int ctas_;
  ActivationRing<Shape::kStages> ring_;
};

/// Offsets in a slot of weights.
struct SlotOfBlocks {
  static constexpr int kStrips = kLargeMRows / kStripRows;
  static constexpr int kCodeBytes = LargeMBlockShape::kBatch * tile_bytes(8);  // of a strip
  static constexpr int kScales = kStrips * kCodeBytes;

  __device__ explicit SlotOfBlocks(const WeightArguments& w)
      : scale_bytes(kStripRows * w.scale.bytes), bytes(kScales + kStrips * scale_bytes) {}

  int scale_bytes;  // of a strip
  int bytes;
};

/// The producer warp, as WeightProducer.
class CopiesOfBlocks {
 public:
  __device__ CopiesOfBlocks(const WeightArguments& w, const MapsOfBlocks& maps, uint32_t to,
                            const WeightRing& ring)
      : slot_(w), maps_(maps), to_(to), ring_(ring) {}

  /// By the first of the producer warps. Strips beyond the matrix are zeros.
  __device__ void copy(int warp, int64_t, int tile_n, int begin, int end) {
    constexpr int kBatch = LargeMBlockShape::kBatch;
    constexpr int kElements = SlotOfBlocks::kCodeBytes / 8;  // of the map of codes, in a box
    if (warp != 0 || threadIdx.x % kLanes != 0) return;
    const int strip = tile_n * SlotOfBlocks::kStrips;
#pragma unroll 1
    for (int block = begin / kBatch; block < end / kBatch; ++block, ring_.next()) {
      const uint32_t full = ring_.full + ring_.slot * 8;
      const uint32_t to = to_ + ring_.slot * slot_.bytes;
      mbarrier_wait(ring_.empty + ring_.slot * 8, ring_.phase ^ 1);
      mbarrier_arrive_expect_tx(full, slot_.bytes);
      tma_load_2d(to, maps_.weights, block * kElements, strip, full, 0, false);
      tma_load_2d(to + SlotOfBlocks::kScales, maps_.scales, block * slot_.scale_bytes, strip, full,
                  0, false);
    }
  }

 private:
  const SlotOfBlocks slot_;
  const MapsOfBlocks& maps_;
  const uint32_t to_;
  WeightRing ring_;
};

/// What a lane needs of 128 inputs of a strip.
struct BlockOfWeights {
  uint32_t words[4][4];  // 32 inputs each
  float scales[2];       // of rows g and g + 8

  /// 32 inputs as operand A.
  __device__ void decode(int i, uint32_t (&a)[4]) const {
    a[0] = __byte_perm(words[i][0], words[i][1], 0x5140);
    a[1] = __byte_perm(words[i][0], words[i][1], 0x7362);
    a[2] = __byte_perm(words[i][2], words[i][3], 0x5140);
    a[3] = __byte_perm(words[i][2], words[i][3], 0x7362);
  }
};

/// A consumer warp's view of its strip of E4M3.
template <class Decoder>
class WeightsInBlocks {
 public:
  static_assert(Decoder::kBits == 8);

  __device__ WeightsInBlocks(const WeightArguments& weights, uint32_t shared,
                             const WeightRing& ring, int warp)
      : w_(weights), ring_(ring) {
    ring_.full = keep_in_register(ring.full);
    ring_.empty = keep_in_register(ring.empty);
    const SlotOfBlocks slot(weights);
    const uint32_t lane = threadIdx.x % kLanes;
    bytes_ = keep_in_register(slot.bytes);
    codes_ = keep_in_register(shared + warp * SlotOfBlocks::kCodeBytes + lane * 16);
    scales_ = keep_in_register(shared + SlotOfBlocks::kScales + warp * slot.scale_bytes +
                               lane / 4 * 2 * weights.scale.bytes);
  }

  /// Waits for the next block, reads it and releases its slot.
  __device__ void take(BlockOfWeights& block) {
    mbarrier_wait(ring_.full + ring_.slot * 8, ring_.phase);
    const uint32_t codes = codes_ + ring_.slot * bytes_;
    const uint32_t scales = scales_ + ring_.slot * bytes_;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      ld_shared<4>(block.words[i], codes + i / 2 * kTile + i % 2 * (kTile / 2));
    }
    TwoCodes code;
    if (w_.scale.bytes == 1) {
      code = ld_shared_two<1>(scales);
    } else if (w_.scale.bytes == 2) {
      code = ld_shared_two<2>(scales);
    } else {
      code = ld_shared_two<4>(scales);
    }
    block.scales[0] = scale_value(code.even, w_.scale);
    block.scales[1] = scale_value(code.odd, w_.scale);
    __syncwarp();
    if (threadIdx.x % kLanes == 0) mbarrier_arrive(ring_.empty + ring_.slot * 8);
    ring_.next();
  }

 private:
  static constexpr int kTile = tile_bytes(8);

  const WeightArguments& w_;
  WeightRing ring_;
  uint32_t bytes_;  // of a slot
  uint32_t codes_;  // of this lane in the first slot
  uint32_t scales_;
};

/// A consumer warp, as ConsumerWarp.
template <class Decoder>
class WarpOfBlocks {
 public:
  using Shape = LargeMBlockShape;
  using Weights = WeightsInBlocks<Decoder>;

  __device__ WarpOfBlocks(const LargeMPartition& p, int part, const MapsOfBlocks&,
                          const Weights& weights, uint32_t shared, uint32_t full)
      : weights_(weights),
        first_stage_(keep_in_register(static_cast<uint32_t>(wgmma_descriptor(shared)))),
        factors_(
            keep_in_register(shared + Shape::kStages * Shape::kTileBytes + threadIdx.x % 4 * 8)),
        full_(keep_in_register(full)),
        releases_(threadIdx.x % kLanes < p.multicast),
        empty_(keep_in_register(mapa(full + Shape::kStages * 8,
                                     part * p.multicast + threadIdx.x % kLanes % p.multicast))) {}

  /// The weights of the next block are read while one is multiplied.
  __device__ void multiply(const LargeMItem& item) {
#pragma unroll
    for (float& total : accumulators) total = 0;
    BlockOfWeights weights;
    weights_.take(weights);
#pragma unroll 1
    for (int tile = item.begin + Shape::kBatch; tile < item.end; tile += Shape::kBatch) {
      multiply_block<true>(weights);
    }
    multiply_block<false>(weights);
  }

  /// Totals, as ConsumerWarp::accumulators.
  float accumulators[Shape::kTokens / 2];

 private:
  template <bool kTakesNext>
  __device__ __forceinline__ void multiply_block(BlockOfWeights& weights) {
    float sums[Shape::kTokens / 2];
    uint32_t a[4][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      weights.decode(i, a[i]);
#pragma unroll
      for (uint32_t& codes : a[i]) codes = keep_in_register(codes);  // before the fence
    }
    const float scales[2] = {weights.scales[0], weights.scales[1]};
    const uint64_t b =
        (wgmma_descriptor(0) >> 32 << 32) | (first_stage_ + ring_.stage * (Shape::kTileBytes >> 4));
    mbarrier_wait(full_ + ring_.stage * 8, ring_.phase);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i) wgmma_e4m3(sums, a[i], b + 2 * i, i > 0);
    wgmma_commit();
    if constexpr (kTakesNext) weights_.take(weights);
    wgmma_wait<0>();
    add(sums, scales);
  }

  /// Multiplies by factors and scales, and releases the stage.
  __device__ __forceinline__ void add(const float (&sums)[Shape::kTokens / 2],
                                      const float (&scales)[2]) {
    const uint32_t from = factors_ + ring_.stage * Shape::kFactorBytes;
    float factors[Shape::kTokens / 4];
#pragma unroll
    for (int i = 0; i < Shape::kTokens / 8; ++i) {
      ld_shared<2>(reinterpret_cast<uint32_t*>(factors + 2 * i), from + i * 32);
    }
    __syncwarp();  // all lanes have read their factors
    if (releases_) mbarrier_arrive_cluster(empty_ + ring_.stage * 8);
    ring_.next();
    if (__all_sync(0xffffffff, scales[0] == scales[1])) {
#pragma unroll
      for (float& factor : factors) factor *= scales[0];
#pragma unroll
      for (int i = 0; i < Shape::kTokens / 2; ++i) {
        accumulators[i] = fmaf(sums[i], factors[i / 4 * 2 + i % 2], accumulators[i]);
      }
    } else {
#pragma unroll
      for (int i = 0; i < Shape::kTokens / 2; ++i) {
        const float factor = factors[i / 4 * 2 + i % 2] * scales[i % 4 / 2];
        accumulators[i] = fmaf(sums[i], factor, accumulators[i]);
      }
    }
  }

  Weights weights_;
  const uint32_t first_stage_;  // low half of its descriptor
  const uint32_t factors_;      // of this lane's tokens in the first stage
  const uint32_t full_;
  const bool releases_;
  const uint32_t empty_;
  ActivationRing<Shape::kStages> ring_;
};

template <class NumberOf, class DecoderOf>
struct ProductsOfBlocks {
  using Number = NumberOf;
  using Decoder = DecoderOf;
  using Shape = LargeMBlockShape;
  static constexpr int kGroups = 1;
  static constexpr int kTokens = Shape::kTokens;
  static constexpr int kBatch = Shape::kBatch;
  using Maps = MapsOfBlocks;
  using Activations = ProducerOfBlocks;
  using Warp = WarpOfBlocks<Decoder>;

  static __device__ void fill(uint8_t*, const LargeMShared&, const WeightArguments&, const Maps&) {}
  static __device__ CopiesOfBlocks copies(const WeightArguments& w, const Maps& maps, uint32_t to,
                                          const WeightRing& ring) {
    return {w, maps, to, ring};
  }
  static __device__ typename Warp::Weights weights(const WeightArguments& w, const Table&,
                                                   uint8_t* shared, const LargeMShared& at,
                                                   const WeightRing& ring, int warp) {
    return {w, shared_address(shared + at.weights), ring, warp};
  }
};

}  // namespace subbyte::cuda
