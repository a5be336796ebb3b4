#pragma once
// large_m256 with products in E4M3, on the tensor cores for 8 bits: weights in MXFP4 by activations
// in E4M3 with a scale for each token.
//
// Weights keep no scale beside them: an E2M1 number times a power of two is an E4M3 number, as long
// as the power lies within 15 binades. So the codes are looked up in tables, one for each of the
// 256 scales, relative to the largest scale of the matrix:
//
//   scale 2^(largest - 3)     0 0.5 1 1.5 | 2 3 4 6   times 2^(kTopScale - 3), four bytes a word
//
// Numbers that are more than 15 binades below are rounded to multiples of 2^-9 in that unit.
//
// A tensor core for 8 bits cuts what it adds 13 bits below the largest of it: some 0.3 % of a sum
// of 2880 products, where rounding the activations costs 2 to 3 %. (Sums of 128 inputs that are
// added in float32 take the time that faster products win: docs/kernels/cuda_decisions.md.)
//
// Inputs have the order that decoding is short in: of each 16 inputs byte 4 t + j of a row of
// activations is input 2 t + j / 2 + 8 (j % 2), as quantize_rows() writes them.

#include "kernels/cuda/large_m/kernel.cuh"

namespace subbyte::cuda {

/// The largest scale becomes 2^kTopScale: 6 * 2^6 is the last that E4M3 has below 448.
inline constexpr int kTopScale = 6;

/// What the kernel reads besides the weights.
struct RowsIn8BitsArguments {
  const float* scales;    // [count], of the tokens
  int64_t count;          // of tokens
  float unit;             // the results are in units of a token's scale by this
  int32_t largest_scale;  // code of the largest E8M0 scale
};

struct MapsIn8Bits {
  const CUtensorMap& codes;  // [tokens][inputs]
  const RowsIn8BitsArguments& rows;
};

/// A stage of the ring of activations: codes in the first half. The second half of the first stage
/// has the tables.
struct StageIn8Bits {
  static constexpr int kTokens = 256;
  static constexpr int kPitch = LargeMShape<kTokens>::kTileBytes;
  static constexpr int kCodeBytes = kTokens * kTileCols;
  static constexpr int kTableBytes = 256 * 8;
  static_assert(kCodeBytes + kTableBytes <= kPitch);
};

/// E2M1 numbers times a scale, in E4M3.
struct ScaledE2M1 {
  uint32_t low;   // 0, 0.5, 1, 1.5
  uint32_t high;  // 2, 3, 4, 6
};

/// Of E8M0 code `scale`; 255 is NaN.
__device__ __forceinline__ ScaledE2M1 scaled_e2m1(int scale, int largest) {
  if (scale == 0xFF) return {0x7f7f7f7f, 0x7f7f7f7f};
  const float unit = ldexpf(1, scale - largest + kTopScale);
  return {e4m3_x2(0, 0.5f * unit) | e4m3_x2(unit, 1.5f * unit) << 16,
          e4m3_x2(2 * unit, 3 * unit) | e4m3_x2(4 * unit, 6 * unit) << 16};
}

/// Eight E2M1 codes of a word (kHalves in tile_order.h): four of row g in the low halves of the
/// bytes, four of row g + 8 in the high ones.
__device__ __forceinline__ void decode_e2m1(uint32_t codes, const ScaledE2M1& of_even,
                                            const ScaledE2M1& of_odd, uint32_t& even,
                                            uint32_t& odd) {
  const uint32_t magnitudes = codes & 0x77777777;
  const uint32_t upper = magnitudes >> 16;
  even = __byte_perm(__byte_perm(of_even.low, of_even.high, magnitudes),
                     __byte_perm(of_even.low, of_even.high, upper), 0x6420) |
         (codes << 4 & 0x80808080);
  odd = __byte_perm(__byte_perm(of_odd.low, of_odd.high, magnitudes),
                    __byte_perm(of_odd.low, of_odd.high, upper), 0x7531) |
        (codes & 0x80808080);
}

/// The thread that copies activations, as ActivationProducer.
class ProducerIn8Bits {
 public:
  using Stage = StageIn8Bits;

  __device__ ProducerIn8Bits(const MapsIn8Bits& maps, const LargeMPartition& p,
                             const LargeMCta& cta, uint32_t shared, uint32_t full)
      : codes_(maps.codes),
        first_(cta.row * (Stage::kTokens / p.multicast)),
        to_(shared + first_ * kTileCols),
        full_(full),
        multicast_(p.multicast > 1),
        ctas_(((1 << p.multicast) - 1) << cta.part * p.multicast) {}

  __device__ void copy(const LargeMItem& item) {
    constexpr int kStages = LargeMShape<Stage::kTokens>::kStages;
    const int token = static_cast<int>(item.first_token) + first_;
#pragma unroll 1
    for (int tile = item.begin; tile < item.end; ++tile, ring_.next()) {
      const uint32_t full = full_ + ring_.stage * 8;
      mbarrier_wait(full + kStages * 8, ring_.phase ^ 1);
      mbarrier_arrive_expect_tx(full, Stage::kCodeBytes);
      tma_load_2d(to_ + ring_.stage * Stage::kPitch, codes_, tile * kTileCols, token, full, ctas_,
                  multicast_);
    }
  }

 private:
  const CUtensorMap& codes_;
  const int first_;  // of the tokens that this CTA copies, in a stage
  const uint32_t to_;
  const uint32_t full_;
  const bool multicast_;
  const int ctas_;
  ActivationRing<LargeMShape<Stage::kTokens>::kStages> ring_;
};

/// A consumer warp's view of its strip of MXFP4.
template <class Decoder>
class WeightsIn8Bits {
 public:
  static constexpr int kGroups = 2;  // of 32 inputs, in a tile
  static constexpr int kBatch = weight_batch(Decoder::kBits);
  static_assert(Decoder::kBits == 4 && kTileCols == kGroups * 32);

  /// `tables`: address of ScaledE2M1 [256].
  __device__ WeightsIn8Bits(const WeightArguments& weights, uint32_t tables, uint32_t shared,
                            const WeightRing& ring, int warp)
      : tables_(keep_in_register(tables)), ring_(ring) {
    ring_.full = keep_in_register(ring.full);
    ring_.empty = keep_in_register(ring.empty);
    lane_ = keep_in_register(threadIdx.x % kLanes);
    stream_ = keep_in_register(stream_sizes<Decoder, kGroups>(weights).stream);
    first_ = keep_in_register(shared + warp * stream_);
  }

  __device__ void begin_batch() {
    mbarrier_wait(ring_.full + ring_.slot * 8, ring_.phase);
    const uint32_t batch = first_ + ring_.slot * 8 * stream_;
    codes_ = keep_in_register(batch + lane_ * (kSteps * 4));
    scales_ = keep_in_register(batch + kBatch * kTile + lane_ / 4 * (2 * kGroups));
  }
  __device__ void end_batch() {
    __syncwarp();
    if (lane_ == 0) mbarrier_arrive(ring_.empty + ring_.slot * 8);
    ring_.next();
  }

  /// What decoding a tile of the batch needs.
  struct Tile {
    uint32_t words[kSteps];
    ScaledE2M1 tables[kGroups][2];  // of rows g and g + 8
  };

  __device__ Tile read(int tile) const {
    Tile read;
    uint32_t scales;  // of rows g and g + 8 for the first 32 inputs, then for the others
    ld_shared<kSteps>(read.words, codes_ + tile * kTile);
    ld_shared<1>(&scales, scales_ + tile * (kGroups * kStripRows));
#pragma unroll
    for (int i = 0; i < 2 * kGroups; ++i) read.tables[i / 2][i % 2] = table(scales >> 8 * i & 0xff);
    return read;
  }

  /// 32 inputs as operand A.
  static __device__ void decode(const Tile& tile, int group, uint32_t (&a)[4]) {
    const ScaledE2M1(&tables)[2] = tile.tables[group];
    decode_e2m1(tile.words[2 * group], tables[0], tables[1], a[0], a[1]);
    decode_e2m1(tile.words[2 * group + 1], tables[0], tables[1], a[2], a[3]);
  }

 private:
  static constexpr int kTile = tile_bytes(4);

  __device__ ScaledE2M1 table(uint32_t scale) const {
    uint32_t words[2];
    ld_shared<2>(words, tables_ + scale * 8);
    return {words[0], words[1]};
  }

  const uint32_t tables_;
  WeightRing ring_;
  uint32_t lane_;
  uint32_t stream_;
  uint32_t first_;
  uint32_t codes_;   // of this lane, in the batch
  uint32_t scales_;  // the same
};

/// A consumer warp, as ConsumerWarp.
template <class Decoder>
class WarpIn8Bits {
 public:
  using Stage = StageIn8Bits;
  using Weights = WeightsIn8Bits<Decoder>;

  __device__ WarpIn8Bits(const LargeMPartition& p, int part, const MapsIn8Bits& maps,
                         const Weights& weights, uint32_t shared, uint32_t full)
      : weights_(weights),
        rows_(maps.rows),
        first_stage_(keep_in_register(static_cast<uint32_t>(wgmma_descriptor_of_bytes(shared)))),
        full_(keep_in_register(full)),
        releases_(threadIdx.x % kLanes < p.multicast),
        empty_(keep_in_register(mapa(full + Shape::kStages * 8,
                                     part * p.multicast + threadIdx.x % kLanes % p.multicast))) {}

  /// As ConsumerWarp: the products of 32 inputs are computed while the weights of the next 32 are
  /// decoded.
  __device__ void multiply(const LargeMItem& item) {
    int before = -1;  // stage whose products may still be in flight
    for (int tile = item.begin; tile < item.end; tile += Weights::kBatch) {
      const int tiles = min(Weights::kBatch, item.end - tile);
      weights_.begin_batch();
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
    multiply_by_scales(item.first_token);
  }

  float accumulators[Stage::kTokens / 2];

 private:
  using Shape = LargeMShape<Stage::kTokens>;

  __device__ void multiply_tile(int index, int before) {
    const typename Weights::Tile tile = weights_.read(index);
    const uint64_t b = (wgmma_descriptor_of_bytes(0) >> 32 << 32) |
                       (first_stage_ + ring_.stage * (Stage::kPitch >> 4));
#pragma unroll
    for (int group = 0; group < Weights::kGroups; ++group) {
      wgmma_wait<1>();  // the products that read the registers of this group are done
      if (group == 1) release(before);
      Weights::decode(tile, group, a_[group]);
      if (group == 0) mbarrier_wait(full_ + ring_.stage * 8, ring_.phase);
      wgmma_fence();
      wgmma_e4m3(accumulators, a_[group], b + 2 * group, group > 0 || before >= 0);
      wgmma_commit();
    }
  }

  /// The producers may fill stage `stage`, if it is one. A lane arrives for each CTA.
  __device__ void release(int stage) const {
    if (stage >= 0 && releases_) mbarrier_arrive_cluster(empty_ + stage * 8);
  }

  __device__ void multiply_by_scales(int64_t first_token) {
    const int64_t first = first_token + threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < Stage::kTokens / 8; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int64_t token = first + 8 * i + j;
        const float scale = token < rows_.count ? rows_.scales[token] * rows_.unit : 0;
        accumulators[4 * i + j] *= scale;
        accumulators[4 * i + 2 + j] *= scale;
      }
    }
  }

  Weights weights_;
  const RowsIn8BitsArguments& rows_;
  const uint32_t first_stage_;  // low half of its descriptor
  const uint32_t full_;
  const bool releases_;
  const uint32_t empty_;
  ActivationRing<Shape::kStages> ring_;
  uint32_t a_[Weights::kGroups][4];
};

template <class NumberOf, class DecoderOf>
struct ProductsIn8Bits {
  using Number = NumberOf;
  using Decoder = DecoderOf;
  static constexpr int kGroups = WeightsIn8Bits<Decoder>::kGroups;
  static constexpr int kTokens = StageIn8Bits::kTokens;
  static constexpr int kBatch = WeightsIn8Bits<Decoder>::kBatch;
  using Shape = LargeMShape<kTokens>;
  using Maps = MapsIn8Bits;
  using Activations = ProducerIn8Bits;
  using Warp = WarpIn8Bits<Decoder>;

  /// By all threads, of the CTA's shared memory. Tables of a scale.
  static __device__ void fill(uint8_t* shared, const LargeMShared&, const WeightArguments&,
                              const Maps& maps) {
    auto* const tables = reinterpret_cast<ScaledE2M1*>(shared + StageIn8Bits::kCodeBytes);
    for (int i = static_cast<int>(threadIdx.x); i < 256; i += kLargeMThreads) {
      tables[i] = scaled_e2m1(i, maps.rows.largest_scale);
    }
  }
  static __device__ WeightProducer<Decoder, kGroups, kBatch> copies(const WeightArguments& w,
                                                                    const Maps&, uint32_t to,
                                                                    const WeightRing& ring) {
    return {w, to, ring};
  }
  static __device__ typename Warp::Weights weights(const WeightArguments& w, const Table&,
                                                   uint8_t* shared, const LargeMShared& at,
                                                   const WeightRing& ring, int warp) {
    return {w, shared_address(shared + StageIn8Bits::kCodeBytes),
            shared_address(shared + at.weights), ring, warp};
  }
};

}  // namespace subbyte::cuda
