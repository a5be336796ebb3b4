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
// A stage of the ring has 128 inputs, which are two K tiles; the last stage's place is that of the
// factors of the others.

#include "kernels/cuda/large_m/kernel.cuh"

namespace subbyte::cuda {

/// Inputs that share a factor of a token and a scale of an output, in K tiles.
inline constexpr int kTilesOfBlock = 2;

/// Factors of activations: [cols / 128][stride], of tokens; stride is a multiple of 128.
struct ActivationFactors {
  const float* factors;
  int64_t stride;
};

struct MapsOfBlocks {
  const CUtensorMap& codes;  // [tokens][inputs]
  const ActivationFactors& factors;
};

struct StageOfBlock {
  static constexpr int kTokens = 128;
  static constexpr int kPitch = LargeMShape<kTokens>::kTileBytes;
  static constexpr int kStages = LargeMShape<kTokens>::kStages - 1;
  static constexpr int kFactorBytes = kTokens * 4;
  static constexpr int kFactors = kStages * kPitch;  // offset of those of the first stage
  static_assert(kTokens * kTilesOfBlock * kTileCols == kPitch);
  static_assert(kStages * kFactorBytes <= kPitch);
};

/// The thread that copies activations, as ActivationProducer. Factors of all tokens are copied by
/// each CTA, which has half of them more than it needs to with multicast, but 512 bytes.
class ProducerOfBlocks {
 public:
  using Stage = StageOfBlock;

  __device__ ProducerOfBlocks(const MapsOfBlocks& maps, const LargeMPartition& p,
                              const LargeMCta& cta, uint32_t shared, uint32_t full)
      : maps_(maps),
        first_(cta.row * (Stage::kTokens / p.multicast)),
        shared_(shared),
        full_(full),
        multicast_(p.multicast > 1),
        ctas_(((1 << p.multicast) - 1) << cta.part * p.multicast) {}

  __device__ void copy(const LargeMItem& item) {
    constexpr int kEmpty = LargeMShape<Stage::kTokens>::kStages * 8;
    const int token = static_cast<int>(item.first_token) + first_;
    const ActivationFactors& factors = maps_.factors;
#pragma unroll 1
    for (int tile = item.begin; tile < item.end; tile += kTilesOfBlock, ring_.next()) {
      const uint32_t full = full_ + ring_.stage * 8;
      mbarrier_wait(full + kEmpty, ring_.phase ^ 1);
      mbarrier_arrive_expect_tx(full, Stage::kPitch + Stage::kFactorBytes);
      cp_async_bulk(shared_ + Stage::kFactors + ring_.stage * Stage::kFactorBytes,
                    factors.factors + tile / kTilesOfBlock * factors.stride + item.first_token,
                    Stage::kFactorBytes, full);
      tma_load_2d(shared_ + ring_.stage * Stage::kPitch + first_ * (kTilesOfBlock * kTileCols),
                  maps_.codes, tile * kTileCols, token, full, ctas_, multicast_);
    }
  }

 private:
  const MapsOfBlocks& maps_;
  const int first_;  // of the tokens that this CTA copies, in a stage
  const uint32_t shared_;
  const uint32_t full_;
  const bool multicast_;
  const int ctas_;
  ActivationRing<Stage::kStages> ring_;
};

/// A consumer warp's view of its strip of E4M3.
template <class Decoder>
class WeightsInBlocks {
 public:
  static constexpr int kBatch = weight_batch(Decoder::kBits);
  static constexpr int kBlocks = kBatch / kTilesOfBlock;
  static_assert(Decoder::kBits == 8 && kBatch % kTilesOfBlock == 0);

  __device__ WeightsInBlocks(const WeightArguments& weights, uint32_t shared,
                             const WeightRing& ring, int warp)
      : w_(weights), ring_(ring) {
    ring_.full = keep_in_register(ring.full);
    ring_.empty = keep_in_register(ring.empty);
    lane_ = keep_in_register(threadIdx.x % kLanes);
    stream_ = keep_in_register(stream_sizes<Decoder, 1>(weights).stream);
    first_ = keep_in_register(shared + warp * stream_);
  }

  __device__ void begin_batch() {
    mbarrier_wait(ring_.full + ring_.slot * 8, ring_.phase);
    const uint32_t batch = first_ + ring_.slot * 8 * stream_;
    codes_ = keep_in_register(batch + lane_ * 16);
    const uint32_t scales = batch + kBatch * kTile;
    if (w_.scale.bytes == 1) {
      read_scales<1>(scales);
    } else if (w_.scale.bytes == 2) {
      read_scales<2>(scales);
    } else {
      read_scales<4>(scales);
    }
  }
  __device__ void end_batch() {
    __syncwarp();
    if (lane_ == 0) mbarrier_arrive(ring_.empty + ring_.slot * 8);
    ring_.next();
  }

  /// The 128 inputs of block `block` of the batch as operands A, 32 inputs each.
  __device__ void read(int block, uint32_t (&a)[4][4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32_t words[4];  // two steps of 16 inputs
      ld_shared<4>(words, codes_ + (block * kTilesOfBlock + i / 2) * kTile + i % 2 * (kTile / 2));
      a[i][0] = __byte_perm(words[0], words[1], 0x5140);
      a[i][1] = __byte_perm(words[0], words[1], 0x7362);
      a[i][2] = __byte_perm(words[2], words[3], 0x5140);
      a[i][3] = __byte_perm(words[2], words[3], 0x7362);
    }
  }

  /// Of rows g and g + 8, in each block of the batch.
  float scales[kBlocks][2];

 private:
  static constexpr int kTile = tile_bytes(8);

  /// A batch that ends early has what was there before in its second block, which is not used.
  template <int kBytes>
  __device__ void read_scales(uint32_t from) {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      const uint32_t at = block * kStripRows + lane_ / 4 * 2;
      const TwoCodes code = ld_shared_two<kBytes>(from + at * kBytes);
      scales[block][0] = scale_value(code.even, w_.scale);
      scales[block][1] = scale_value(code.odd, w_.scale);
    }
  }

  const WeightArguments& w_;
  WeightRing ring_;
  uint32_t lane_;
  uint32_t stream_;
  uint32_t first_;
  uint32_t codes_;  // of this lane, in the batch
};

/// A consumer warp, as ConsumerWarp.
template <class Decoder>
class WarpOfBlocks {
 public:
  using Stage = StageOfBlock;
  using Weights = WeightsInBlocks<Decoder>;

  __device__ WarpOfBlocks(const LargeMPartition& p, int part, const MapsOfBlocks&,
                          const Weights& weights, uint32_t shared, uint32_t full)
      : weights_(weights),
        first_stage_(keep_in_register(static_cast<uint32_t>(wgmma_descriptor(shared)))),
        factors_(keep_in_register(shared + Stage::kFactors + threadIdx.x % 4 * 8)),
        full_(keep_in_register(full)),
        releases_(threadIdx.x % kLanes < p.multicast),
        empty_(keep_in_register(mapa(full + LargeMShape<Stage::kTokens>::kStages * 8,
                                     part * p.multicast + threadIdx.x % kLanes % p.multicast))) {}

  __device__ void multiply(const LargeMItem& item) {
#pragma unroll
    for (float& total : accumulators) total = 0;
#pragma unroll 1
    for (int tile = item.begin; tile < item.end; tile += Weights::kBatch) {
      const int blocks = min(Weights::kBatch, item.end - tile) / kTilesOfBlock;
      weights_.begin_batch();
#pragma unroll
      for (int block = 0; block < Weights::kBlocks; ++block) {
        if (block < blocks) multiply_block(block);
      }
      weights_.end_batch();
    }
  }

  /// Totals, as ConsumerWarp::accumulators.
  float accumulators[Stage::kTokens / 2];

 private:
  __device__ __forceinline__ void multiply_block(int block) {
    float sums[Stage::kTokens / 2];
    float factors[Stage::kTokens / 4];
    uint32_t a[4][4];
    weights_.read(block, a);
    const uint64_t b =
        (wgmma_descriptor(0) >> 32 << 32) | (first_stage_ + ring_.stage * (Stage::kPitch >> 4));
    mbarrier_wait(full_ + ring_.stage * 8, ring_.phase);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i) wgmma_e4m3(sums, a[i], b + 2 * i, i > 0);
    wgmma_commit();
    const uint32_t from = factors_ + ring_.stage * Stage::kFactorBytes;
#pragma unroll
    for (int i = 0; i < Stage::kTokens / 8; ++i) {
      ld_shared<2>(reinterpret_cast<uint32_t*>(factors + 2 * i), from + i * 32);
    }
    wgmma_wait<0>();
    __syncwarp();  // all lanes have read their factors
    if (releases_) mbarrier_arrive_cluster(empty_ + ring_.stage * 8);
    ring_.next();
#pragma unroll
    for (int i = 0; i < Stage::kTokens / 2; ++i) {
      const float factor = factors[i / 4 * 2 + i % 2] * weights_.scales[block][i % 4 / 2];
      accumulators[i] = fmaf(sums[i], factor, accumulators[i]);
    }
  }

  Weights weights_;
  const uint32_t first_stage_;  // low half of its descriptor
  const uint32_t factors_;      // of this lane's tokens in the first stage
  const uint32_t full_;
  const bool releases_;
  const uint32_t empty_;
  ActivationRing<Stage::kStages> ring_;
};

template <class NumberOf, class DecoderOf>
struct ProductsOfBlocks {
  using Number = NumberOf;
  using Decoder = DecoderOf;
  static constexpr int kGroups = 1;
  static constexpr int kTokens = StageOfBlock::kTokens;
  using Maps = MapsOfBlocks;
  using Activations = ProducerOfBlocks;
  using Warp = WarpOfBlocks<Decoder>;

  static __device__ void fill(uint8_t*, const LargeMShared&, const WeightArguments&, const Maps&) {}
  static __device__ typename Warp::Weights weights(const WeightArguments& w, const Table&,
                                                   uint8_t* shared, const LargeMShared& at,
                                                   const WeightRing& ring, int warp) {
    return {w, shared_address(shared + at.weights), ring, warp};
  }
};

}  // namespace subbyte::cuda
