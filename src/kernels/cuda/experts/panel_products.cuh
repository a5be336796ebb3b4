#pragma once
// From a slot of weights and a panel of inputs to sums: what a warp of a panel kernel does with a
// batch of four K tiles of its strip.
//
// Products of raw codes and inputs (gpu/decoders.h) go into the accumulators of a group by wgmma,
// while the next steps are decoded. When those of a group are there they are scaled and added in
// float32, with what zero points and offsets contribute:
//
//   part    0       1       2       3         steps of one tile, or of half of one with four groups
//   decode  ====    ====    ====    ====
//   wgmma       ----    ----    ----    ----  two parts have registers of their own
//   add                     ==0=    ==1=  ==2=3=

#include "kernels/cuda/common/tf32.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/experts/panel_stream.cuh"

namespace subbyte::cuda {

/// The accumulators of a warp: its strip by the tokens of a panel, as those of mma.m16n8k16.
template <class Number, class Decoder, int kGroups>
class PanelProducts {
 public:
  static constexpr int kTileBytes = kPanelTokens * kTileCols * 2;  // of a panel
  using Stream = PanelStream<Decoder, kGroups>;
  using Reader = PairReader<Decoder, kGroups>;

  /// `panel` and `x_sums` are shared addresses.
  __device__ PanelProducts(uint32_t panel, uint32_t x_sums, int lane)
      : panel_(keep_in_register(static_cast<uint32_t>(wgmma_descriptor(panel)))),
        x_sums_(keep_in_register(x_sums)),
        lane_(lane) {}

  __device__ void clear() {
#pragma unroll
    for (float& sum : sums) sum = 0;
  }

  /// Adds the products of the current slot, which is there, with batch `batch` of the panel's
  /// first kTokens tokens. kOneGroup: the tiles of a pair have one scale for each row. Calls
  /// release() when the slot has been read.
  template <int kTokens, bool kOneGroup, class Release>
  __device__ __forceinline__ void add_batch(const Stream& stream, const Reader& reader,
                                            const Table& table, int batch, const Release& release) {
    using Of = Parts<kTokens, kOneGroup>;
    typename Reader::Scales scales[2];
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      reader.template read_scales<Of::kScaledTiles>(stream.place(pair), scales[pair], [] {});
      if constexpr (Reader::kZeroBytes > 0) {
        reader.template read_zeros<Of::kScaledTiles>(stream.place(pair), scales[pair]);
      }
    }
    const uint32_t of_batch = x_sums_ + batch * Of::kBatchSums * kPanelTokens * 4;
    // From a shuffle, so that the compiler knows that it is the same in all lanes.
    constexpr uint64_t kHigh = wgmma_descriptor(0) >> 32 << 32;
    const uint32_t b = __shfl_sync(~0u, panel_ + batch * (kPanelBatch * kTileBytes >> 4), 0);
    uint32_t words[Reader::kWords];
    uint32_t a[2][Of::kSteps][4];
    float groups[2][Of::kSums][kTokens / 2];
    const auto end_part = [&](int part) { end<Of>(part, groups, scales, of_batch); };
#pragma unroll
    for (int part = 0; part < Of::kParts; ++part) {
      const int tile = part / Of::kOfTile;
      const int first = part % Of::kOfTile * Of::kSteps;  // step of the tile
      if (first == 0) reader.read_codes(stream.place(tile / 2), tile % 2, words);
      if (part >= 2) {
        wgmma_wait<1>();  // the products that read registers a[part % 2] are done
        if (!kOneGroup || part == 3) end_part(part - 2);
      }
#pragma unroll
      for (int s = 0; s < Of::kSteps; ++s) {
        decode_raw<Decoder>(words, first + s, table, a[part % 2][s]);
      }
      wgmma_fence();
#pragma unroll
      for (int s = 0; s < Of::kSteps; ++s) {
        const int step = first + s;
        const bool begins = kOneGroup ? tile % 2 == 0 && step == 0 : step % Of::kStepsOfGroup == 0;
        wgmma<Number, kTokens>(groups[Of::buffer(part)][kOneGroup ? 0 : s / Of::kStepsOfGroup],
                               a[part % 2][s], kHigh | (b + tile * (kTileBytes >> 4) + 2 * step),
                               begins ? 0 : 1);
      }
      wgmma_commit();
    }
    if constexpr (kHasOffsetProducts) add_offsets<kTokens>(stream.superblock(), of_batch);
    __syncwarp();
    release();
    wgmma_wait<0>();
    if (!kOneGroup) end_part(Of::kParts - 2);
    end_part(Of::kParts - 1);
  }

  /// Sum 4 (token / 8) + (row >= 8 ? 2 : 0) + token % 2.
  float sums[kPanelTokens / 2];

 private:
  using OfSuperblock = SuperblockOf<Decoder, kGroups>;
  /// Offsets of two levels are bytes, of two groups of a tile.
  static constexpr bool kHasOffsetProducts = HasSuperblocks<Decoder> && kGroups == 2 &&
                                             OfSuperblock::kForm.has_offsets &&
                                             !OfSuperblock::kForm.in_halves;

  /// What is decoded and multiplied together.
  template <int kTokensOf, bool kOneGroupOf>
  struct Parts {
    static constexpr int kTokens = kTokensOf;
    static constexpr bool kOneGroup = kOneGroupOf;
    static constexpr int kSteps = PanelProducts::kFourGroups ? 2 : 4;
    static constexpr int kOfTile = cuda::kSteps / kSteps;
    static constexpr int kParts = kPanelBatch * kOfTile;
    static constexpr int kStepsOfGroup = cuda::kSteps / PanelProducts::kGroupsOfTile;
    static constexpr int kSums = kOneGroup ? 1 : kSteps / kStepsOfGroup;  // of a part
    static constexpr int kScaledTiles = kOneGroup ? 1 : 2;                // of a pair
    static constexpr int kBatchSums = kOneGroup ? 2 : kPanelBatch * PanelProducts::kGroupsOfTile;
    static __device__ constexpr int buffer(int part) { return kOneGroup ? part / 2 : part % 2; }
  };
  static constexpr bool kFourGroups = kGroups == 4;
  static constexpr int kGroupsOfTile = kGroups;

  /// Adds the groups of a part, or the group whose last part it is.
  template <class Of, class Groups>
  __device__ __forceinline__ void end(int part, const Groups& groups,
                                      const typename Reader::Scales (&scales)[2],
                                      uint32_t of_batch) {
    const int tile = part / Of::kOfTile;
#pragma unroll
    for (int g = 0; g < Of::kSums; ++g) {
      const int group = Of::kOneGroup ? 0 : part % Of::kOfTile * Of::kSums + g;
      const int scaled = Of::kOneGroup ? 0 : tile % 2;
      const int sum = Of::kOneGroup ? tile / 2 : tile * kGroupsOfTile + group;
      end_group<Of::kTokens>(groups[Of::buffer(part)][g], scales[tile / 2].scales[scaled][group],
                             scales[tile / 2].zeros[scaled][group],
                             of_batch + (sum * kPanelTokens + lane_ % 4 * 2) * 4);
    }
  }

  /// As PairAccumulators has it. `x_sums`: those of this lane's tokens.
  template <int kTokens>
  __device__ __forceinline__ void end_group(const float (&group)[kTokens / 2], float2 scale,
                                            float2 zeros, uint32_t x_sums) {
#pragma unroll
    for (int n = 0; n < kTokens / 8; ++n) {
      float x_sum[2] = {};
      if constexpr (Decoder::kHasZeros) {
        ld_shared<2>(reinterpret_cast<uint32_t*>(x_sum), x_sums + n * 32);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const bool is_odd = i >= 2;
        add_group<Decoder, kGroups, !kHasOffsetProducts>(sums[4 * n + i], group[4 * n + i], is_odd,
                                                         is_odd ? scale.y : scale.x,
                                                         is_odd ? zeros.y : zeros.x, x_sum[i % 2]);
      }
    }
  }

  /// Offsets of two levels are integers times a factor for each 256 inputs, and the sum of the
  /// eight integers of a row times the sums of their inputs is a product of the tensor cores, too:
  /// in tf32, which holds the integers, and the sums as hi and lo.
  template <int kTokens>
  __device__ __forceinline__ void add_offsets(uint32_t superblock, uint32_t of_batch) {
    constexpr Superblock kForm = OfSuperblock::kForm;
    constexpr int kOffsets = 2 * kGroups;  // where they begin in the integers of a lane
    const int t = lane_ % 4;               // group, and group + 4
    uint32_t integers[4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t both =
          ld_shared_u16(superblock + kForm.factors() + (t / 2 + 2 * i) * kForm.tile_integers() +
                        lane_ / 4 * kForm.lane_integers() + kOffsets + t % 2 * 2);
      integers[2 * i] = integer(both, 0);
      integers[2 * i + 1] = integer(both, 1);
    }
    uint32_t halves;
    ld_shared<1>(&halves, superblock + lane_ / 4 * kForm.lane_factors() + 4);
    const float even = F16::to_float(static_cast<uint16_t>(halves)) * Decoder::kRawFactor;
    const float odd = F16::to_float(static_cast<uint16_t>(halves >> 16)) *
                      (Decoder::kRawFactor * Decoder::kRawOdd);
#pragma unroll
    for (int n = 0; n < kTokens / 8; ++n) {
      float products[4] = {};
      float hi[2], lo[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float sum;
        ld_shared<1>(reinterpret_cast<uint32_t*>(&sum),
                     of_batch + ((t + 4 * i) * kPanelTokens + n * 8 + lane_ / 4) * 4);
        hi[i] = __uint_as_float(__float_as_uint(sum) & 0xffffe000);  // its ten bits of tf32
        lo[i] = sum - hi[i];
      }
      mma_tf32(products, integers, __float_as_uint(hi[0]), __float_as_uint(hi[1]));
      mma_tf32(products, integers, __float_as_uint(lo[0]), __float_as_uint(lo[1]));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sums[4 * n + i] = fmaf(i < 2 ? even : odd, products[i], sums[4 * n + i]);
      }
    }
  }
  /// A byte as a float, whose bits are those of tf32.
  static __device__ uint32_t integer(uint32_t bytes, int i) {
    constexpr uint32_t k2To23 = 0x4b000000;
    const uint32_t above = __byte_perm(bytes, k2To23, 0x7650 + i);
    return __float_as_uint(__uint_as_float(above) - (0x1p23f + 128));
  }

  const uint32_t panel_;  // low half of its descriptor
  const uint32_t x_sums_;
  const int lane_;
};

}  // namespace subbyte::cuda
