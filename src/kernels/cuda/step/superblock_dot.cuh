#pragma once
// Products of one token with integers whose scales have two levels, as bytes (integer_dot.cuh has
// the limbs): exact within a group.
//
// A tensor core instruction has eight columns, and a token needs two, its limbs. So the groups of a
// token lie on the diagonal: of four groups that follow each other columns 2 j and 2 j + 1 have the
// inputs of group j, and zeros where the others have theirs. All products of a diagonal go to the
// same accumulators, where lane t = lane % 4 finds the sums of group t: what a group needs after
// its products is done for four at once.
//
//   groups of 32   a diagonal is two tiles: four instructions of 32 inputs
//   groups of 16   a diagonal is a tile: two instructions, each with two groups

#include "kernels/cuda/common/pair_mma.cuh"
#include "kernels/cuda/step/integer_dot.cuh"
#include "kernels/cuda/step/program.h"

namespace subbyte::cuda {

template <class Decoder, int kGroups>
class SuperblockDot : public IntegerInputs<Decoder, kGroups> {
 public:
  using Reader = PairReader<Decoder, kGroups>;
  static_assert(kGroups == 2 || kGroups == 4);

 private:
  using Of = SuperblockOf<Decoder, kGroups>;
  static constexpr Superblock kForm = Of::kForm;
  static constexpr int kDiagonalGroups = 4;
  static constexpr int kDiagonalTiles = kDiagonalGroups / kGroups;
  static constexpr int kDiagonals = kUnitTiles / kDiagonalTiles;
  static constexpr int kFactorWords = kForm.lane_factors() / 4;
  /// The inputs of a group are one word in each lane: those of a step.
  static constexpr bool kIsWord = kGroups == 4 && !Decoder::kStepByByte;
  static constexpr int kInputWords = kIsWord ? 1 : 2;  // of one step, or of two
  static constexpr int kInputBytes = kInputWords * 4;

 public:
  /// A unit in registers.
  struct Unit {
    uint32_t codes[kUnitTiles][Reader::kWords];
    uint32_t b[kDiagonals][kInputWords];
    uint32_t factors[kFactorWords];
    uint32_t scales[kDiagonals];   // integers of both rows, of this lane's group
    uint32_t offsets[kDiagonals];  // the same, if there are any
    uint32_t x_scales[kUnitCols / kInputGroup];
    uint32_t x_sums[kDiagonals];
  };

  __device__ SuperblockDot(const StepShared& s, uint32_t shared, int, int lane)
      : column_group_(lane / 8),
        numbers_(lane % 4 / kGroups * kForm.tile_integers() + lane % 4 % kGroups * 2),
        x_(shared + s.x + lane / 4 % 2 * (s.x_stride / 2) + lane % 4 * 16 +
           column_group_ / kGroups * kTileCols +
           column_group_ % kGroups * (16 / kGroups) / kInputBytes * kInputBytes),
        x_scales_(shared + s.x_scales),
        x_sums_(shared + s.x_sums + lane % 4 * 4),
        byte_mask_(column_group_ % 2 == 0 ? 0x00ff00ffu : 0xff00ff00u),
        lane_(lane) {}

  __device__ void clear() { sums_ = {}; }

  /// Unit `unit` of a strip, which begins at `place`.
  __device__ void load(Unit& to, const Reader& reader, const PairPlace& place, int unit) const {
#pragma unroll
    for (int tile = 0; tile < kUnitTiles; ++tile) reader.read_codes(place, tile, to.codes[tile]);
    ld_shared<kFactorWords>(to.factors, place.zeros);
#pragma unroll
    for (int diagonal = 0; diagonal < kDiagonals; ++diagonal) {
      const int tile = diagonal * kDiagonalTiles;
      load_inputs(to.b[diagonal], x_ + unit * kUnitCols + tile * kTileCols);
      const uint32_t numbers = place.scales + tile * kForm.tile_integers() + numbers_;
      to.scales[diagonal] = ld_shared_u16(numbers);
      if constexpr (Of::kHasOffsets && !kForm.in_halves) {
        to.offsets[diagonal] = ld_shared_u16(numbers + 2 * kGroups);
      } else {
        to.offsets[diagonal] = to.scales[diagonal];
      }
      ld_shared<1>(&to.x_sums[diagonal],
                   x_sums_ + (unit * kUnitTiles * kGroups + 4 * diagonal) * 4);
    }
    ld_shared<kUnitCols / kInputGroup>(to.x_scales, x_scales_ + unit * 8);
  }

  __device__ void add(const Unit& unit) {
    int32_t groups[kDiagonals][4] = {};
#pragma unroll
    for (int i = 0; i < 2 * kDiagonalTiles; ++i) {
#pragma unroll
      for (int diagonal = 0; diagonal < kDiagonals; ++diagonal) {
        uint32_t a[4];
        uint32_t b[2];
        Decoder::decode_bytes(unit.codes[diagonal * kDiagonalTiles + i / 2], i % 2, a);
        on_diagonal(unit.b[diagonal], i, b);
        mma_u8_s8(groups[diagonal], a, b[0], b[1]);
      }
    }
    const float2 scale_factors = both_factors(unit.factors[0]);
    const float2 offset_factors = both_factors(unit.factors[kFactorWords - 1]);
#pragma unroll
    for (int diagonal = 0; diagonal < kDiagonals; ++diagonal) {
      const float of_inputs = __uint_as_float(unit.x_scales[diagonal * 2 / kDiagonals]);
      const auto minus_sum = static_cast<int32_t>(unit.x_sums[diagonal]);
      add_diagonal(groups[diagonal], integers(unit.scales[diagonal], 0), scale_factors, of_inputs,
                   minus_sum);
      if constexpr (Of::kHasOffsets) {
        const float2 of_rows = integers(unit.offsets[diagonal], kForm.in_halves ? 4 : 0);
        const float inputs = static_cast<float>(-minus_sum) * of_inputs;
        sums_.x = fmaf(of_rows.x * offset_factors.x, inputs, sums_.x);
        sums_.y = fmaf(of_rows.y * offset_factors.y, Decoder::kByteOdd * inputs, sums_.y);
      }
    }
  }

  /// Adds unit `unit` of a strip.
  template <bool kOneGroup>
  __device__ void add(const Reader& reader, const PairPlace (&places)[2], int unit, const Table&) {
    Unit loaded;
    load(loaded, reader, places[0], unit);
    add(loaded);
  }

  /// Stores the sums of the token.
  __device__ void store(float* to) const {
    float2 sums = sums_;
#pragma unroll
    for (int distance = 1; distance < 4; distance *= 2) {
      sums.x += __shfl_xor_sync(~0u, sums.x, distance);
      sums.y += __shfl_xor_sync(~0u, sums.y, distance);
    }
    if (lane_ % 4 != 0) return;
    to[lane_ / 4] = sums.x;
    to[lane_ / 4 + 8] = sums.y * (1.0f / Decoder::kByteOdd);
  }

 private:
  __device__ void load_inputs(uint32_t (&to)[kInputWords], uint32_t at) const {
    ld_shared<kInputWords>(to, at);
    if constexpr (kGroups == 4 && Decoder::kStepByByte) {
      to[0] &= byte_mask_;
      to[1] &= byte_mask_;
    }
  }

  /// Operand B of instruction `i` of a diagonal.
  __device__ void on_diagonal(const uint32_t (&inputs)[kInputWords], int i,
                              uint32_t (&b)[2]) const {
    if constexpr (kIsWord) {
      b[0] = column_group_ == 2 * i ? inputs[0] : 0;
      b[1] = column_group_ == 2 * i + 1 ? inputs[0] : 0;
    } else {
      const bool is_here = column_group_ / (kGroups / 2) == i;
      b[0] = is_here ? inputs[0] : 0;
      b[1] = is_here ? inputs[1] : 0;
    }
  }

  static __device__ float2 both_factors(uint32_t halves) {
    return {F16::to_float(static_cast<uint16_t>(halves)),
            F16::to_float(static_cast<uint16_t>(halves >> 16))};
  }

  /// Those of two rows, in the mantissa of 2^23 (two_levels.cuh).
  static __device__ float2 integers(uint32_t both, int half) {
    constexpr uint32_t k2To23 = 0x4b000000;
    constexpr float kBias = kForm.in_halves ? 0x1p23f : 0x1p23f + 128;
    if constexpr (kForm.in_halves) both = both >> half & 0x0f0f;
    return {__uint_as_float(__byte_perm(both, k2To23, 0x7650)) - kBias,
            __uint_as_float(__byte_perm(both, k2To23, 0x7651)) - kBias};
  }

  __device__ void add_diagonal(int32_t (&group)[4], float2 of_rows, float2 factors, float of_inputs,
                               int32_t minus_sum) {
    add_group<Decoder>(sums_, group,
                       {of_rows.x * factors.x * of_inputs, of_rows.y * factors.y * of_inputs},
                       {Of::kZero, Of::kZero}, minus_sum);
  }

  const int column_group_;  // of the diagonal: what this lane's column of operand B has
  const uint32_t numbers_;  // from those of a diagonal's first tile to those of group lane % 4
  const uint32_t x_;        // shared addresses, of this lane's column
  const uint32_t x_scales_;
  const uint32_t x_sums_;
  const uint32_t byte_mask_;
  const int lane_;
  float2 sums_ = {};  // of outputs g and g + 8, of the groups of this lane
};

/// Units of four tiles, which have the same place in each stage.
template <class Decoder, int kGroups>
class SuperblockUnits {
 public:
  using Dot = SuperblockDot<Decoder, kGroups>;
  using Unit = typename Dot::Unit;
  /// `place` is from the begin of a stage.
  __device__ SuperblockUnits(const Dot& dot, const typename Dot::Reader& reader,
                             const PairPlace& place)
      : dot_(dot), reader_(reader), place_(place) {}

  __device__ void load(Unit& to, uint32_t stage, int unit) const {
    const PairPlace place = {stage + place_.codes, stage + place_.scales, stage + place_.zeros};
    dot_.load(to, reader_, place, unit);
  }
  __device__ void add(const Unit& unit) { dot_.add(unit); }
  __device__ void store(float* to) {
    dot_.store(to);
    dot_.clear();
  }

 private:
  Dot dot_;
  const typename Dot::Reader& reader_;
  const PairPlace place_;
};

}  // namespace subbyte::cuda
