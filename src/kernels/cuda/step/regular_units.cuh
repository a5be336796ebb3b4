#pragma once
// The units of a warp in the usual case, as integer_dot.cuh multiplies them: scales of 16 bits,
// zero points that are integers, units of four tiles with scale blocks of their own, up to four
// tokens.
// Everything has the same place in each stage, and while one unit is multiplied, the next one is
// loaded to registers. This loop is why weights are decoded faster than they arrive.
//
// What an instruction costs here: a quarter of a multiprocessor has three of these warps. LOP3,
// PRMT, IMAD and integer additions take two cycles of it each, a product of bytes takes six, so a
// unit with 16 LOP3, 8 products and some 70 others takes about 200; from memory it comes in 330
// (H200).

#include "kernels/cuda/common/pair_mma.cuh"
#include "kernels/cuda/step/integer_dot.cuh"
#include "kernels/cuda/step/program.h"
#include "kernels/cuda/step/ring.cuh"

namespace subbyte::cuda {

/// Scale: F16 or BF16.
template <class Decoder, int kGroups, class Scale, bool kOneGroup>
class RegularUnits {
 public:
  using Reader = PairReader<Decoder, kGroups>;
  static constexpr int kTokens = 4;
  static constexpr int kGroupsOfUnit = kOneGroup ? 2 : kUnitTiles * kGroups;

  static __device__ bool supports(const StepWeights& s, const WeightArguments& w, int m) {
    return m <= kTokens && s.is_regular != 0 && w.zero_kind == ZeroKind::kInteger;
  }

  __device__ RegularUnits(const StepShared& s, const StepWeights& w, const WeightArguments& a,
                          uint32_t shared, int m, int warp, int lane)
      : m_(m),
        lane_(lane),
        pair_scales_(w.pair_blocks * Reader::kBlock * 2),
        pair_zeros_(w.pair_blocks * Reader::kBlock * Reader::kZeroBytes),
        codes_(warp * kUnitTiles * Reader::kTileBytes + lane * Reader::kFirst * 4),
        second_codes_(warp * kUnitTiles * Reader::kTileBytes + kLanes * Reader::kFirst * 4 +
                      lane * Reader::kSecond * 4),
        is_column_(lane / 4 < 2 * m) {
    const int number = warp * w.blocks_of_unit * Reader::kBlock + lane / 4 * 2 * kGroups;
    const bool constant = Reader::has_constant_zeros(a);
    scales_ = s.stage_scales + number * 2;
    zeros_ = constant ? shared + s.zeros + lane / 4 * 2 * kGroups * Reader::kZeroBytes
                      : s.stage_zeros + number * Reader::kZeroBytes;
    zeros_of_stage_ = constant ? 0 : 1;
    next_block_ = w.block_tiles == 1 ? Reader::kBlock : 0;
    x_ = shared + s.x + lane / 8 * s.x_stride + lane / 4 % 2 * (s.x_stride / 2) + lane % 4 * 16;
    x_scales_ = shared + s.x_scales + lane % 4 * s.x_scales_stride;
    x_sums_ = shared + s.x_sums + lane % 4 * s.x_sums_stride;
  }

  /// A unit in registers.
  struct Unit {
    uint32_t codes[kUnitTiles][Reader::kWords];
    uint32_t b[kUnitTiles][4];
    uint32_t scales[kGroupsOfUnit];  // of two rows
    uint32_t zeros[kGroupsOfUnit];
    uint32_t x_scales[2];
    uint32_t x_sums[kUnitTiles * kGroups];
  };

  /// Unit `unit` of a strip, from the stage at that shared address.
  __device__ void load(Unit& to, uint32_t stage, int unit) const {
#pragma unroll
    for (int tile = 0; tile < kUnitTiles; ++tile) {
      ld_shared<Reader::kFirst>(to.codes[tile], stage + codes_ + tile * Reader::kTileBytes);
      if constexpr (Reader::kSecond > 0) {
        ld_shared<Reader::kSecond>(to.codes[tile] + Reader::kFirst,
                                   stage + second_codes_ + tile * Reader::kTileBytes);
      }
    }
    const uint32_t x = x_ + unit * kUnitCols;
#pragma unroll
    for (int tile = 0; tile < kUnitTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) to.b[tile][i] = 0;
      ld_shared_x4_if(is_column_, to.b[tile], x + tile * kTileCols);
    }
    const uint32_t scales = stage + scales_;
    const uint32_t zeros = zeros_ + stage * zeros_of_stage_;
#pragma unroll
    for (int i = 0; i < kGroupsOfUnit; ++i) {
      const int pair = i / (kGroupsOfUnit / 2);
      const int of_pair = i % (kGroupsOfUnit / 2);
      const int number = of_pair / kGroups * next_block_ + of_pair % kGroups * 2;
      ld_shared<1>(&to.scales[i], scales + pair * pair_scales_ + number * 2);
      const uint32_t zero = zeros + pair * pair_zeros_ + number * Reader::kZeroBytes;
      if constexpr (Reader::kZeroBytes == 1) {
        to.zeros[i] = ld_shared_u16(zero);
      } else {
        ld_shared<1>(&to.zeros[i], zero);
      }
    }
    ld_shared<2>(to.x_scales, x_scales_ + unit * 8);
    ld_shared<kUnitTiles * kGroups>(to.x_sums, x_sums_ + unit * kUnitTiles * kGroups * 4);
  }

  __device__ void add(const Unit& unit) {
    multiply_tiles<Decoder, kGroups, kOneGroup>(
        unit, [&](int i, int32_t(&group)[4], int32_t sum, float of_inputs) {
          const uint32_t scale = unit.scales[i];
          add_group<Decoder>(sums_, group,
                             {Scale::to_float(static_cast<uint16_t>(scale)) * of_inputs,
                              Scale::to_float(static_cast<uint16_t>(scale >> 16)) * of_inputs},
                             Reader::to_zeros(unit.zeros[i]), sum);
        });
  }

  /// Stores the sums to [token][kPartialStride], and clears them.
  __device__ void store(float* to) {
    if (lane_ % 4 < m_) {
      float* const at = to + lane_ % 4 * kPartialStride + lane_ / 4;
      at[0] = sums_.x;
      at[8] = sums_.y * (1.0f / Decoder::kByteOdd);
    }
    sums_ = {};
  }

 private:
  const int m_;
  const int lane_;
  const int pair_scales_;  // bytes from those of the first pair to those of the second
  const int pair_zeros_;
  // From the begin of a stage:
  const uint32_t codes_;
  const uint32_t second_codes_;
  uint32_t scales_;
  uint32_t zeros_;  // or a shared address
  uint32_t zeros_of_stage_;
  int next_block_;  // numbers
  const bool is_column_;
  // Shared addresses of what this lane's column and token have:
  uint32_t x_;
  uint32_t x_scales_;
  uint32_t x_sums_;
  float2 sums_ = {};  // of outputs g and g + 8 of token lane % 4
};

/// Multiplies them all. partial_of(strip) says where the partial of a strip goes.
template <class Units, class Clock, class PartialOf>
__device__ __forceinline__ void multiply_regular_units(Units& units, RingPlace& ring,
                                                       const StepWeights& w, int warp, int lane,
                                                       Clock& clock, const PartialOf& partial_of) {
  const int units_of_strip = w.units;
  const int units_further = w.units_further;
  const int strips_further = w.strips_further;
  UnitPlace at = {0, 0};
  at.advance(warp, units_of_strip);
  int left = w.strips.size(blockIdx.x) * units_of_strip - warp;
  const auto wait = [&] {
    clock.waits();
    mbarrier_wait(ring.full(), ring.phase());
    clock.goes_on();
  };
  // The stage of `now` is the ring's; `next` is loaded from the one after it, also where there is
  // none: registers that are set only sometimes are kept by the compiler through all operations.
  const auto half = [&](const typename Units::Unit& now, typename Units::Unit& next) {
    const uint32_t empty = ring.empty();
    const int strip = at.strip;
    at.unit += units_further;
    at.strip += strips_further;
    if (at.unit >= units_of_strip) {
      at.unit -= units_of_strip;
      ++at.strip;
    }
    left -= kStageUnits;
    ring.advance();
    if (left > 0) wait();
    units.load(next, ring.stage(), at.unit);
    units.add(now);
    __syncwarp();
    if (lane == 0) mbarrier_arrive(empty);
    if (at.strip != strip || left <= 0) units.store(partial_of(strip));
  };
  if (left > 0) {
    typename Units::Unit even;
    typename Units::Unit odd;
    wait();
    units.load(even, ring.stage(), at.unit);
#pragma unroll 1
    while (true) {
      half(even, odd);
      if (left <= 0) break;
      half(odd, even);
      if (left <= 0) break;
    }
  }
  // The last stage may have no unit for this warp.
  if (left > -warp) {
    wait();
    if (lane == 0) mbarrier_arrive(ring.empty());
    ring.advance();
  }
}

}  // namespace subbyte::cuda
