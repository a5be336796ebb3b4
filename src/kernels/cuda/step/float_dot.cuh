#pragma once
// Products of weights that no bytes hold (E2M1, codebooks), or that have groups of 16 inputs or,
// beside several tokens, scales of two levels, with inputs of 16 bits, by mma.m16n8k16 as in gemv
// (common/pair_mma.cuh). Inputs of an input group are divided by a power of two, so that the
// largest is between 1 and 2.

#include "kernels/cuda/common/pair_mma.cuh"
#include "kernels/cuda/step/program.h"

namespace subbyte::cuda {

template <class Number, class Decoder, int kGroups>
class FloatDot {
 public:
  using Reader = PairReader<Decoder, kGroups>;
  /// Quantization groups of a tile whose inputs are summed; 0: they are not.
  static constexpr int kSumGroups = Decoder::kHasZeros ? kGroups : 0;
  static constexpr int kTop = 0;

  // --- inputs: rows of numbers, in their order

  /// Stores a lane's inputs (inputs.cuh) of unit `unit`, in units of their scale, in row `row`.
  /// Returns their sums of each step.
  static __device__ float2 put(uint32_t row, int, int unit, int lane, const float (&v)[8]) {
    const uint32_t at = row + (unit * kUnitCols + lane / 4 * 2 * kStepCols + lane % 4 * 2) * 2;
    float sums[2] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t two = Number::pack_x2(v[2 * i], v[2 * i + 1]);
      st_shared(at + i * 16, two);
      sums[i / 2] += sum_of(two);
    }
    return {sums[0], sums[1]};
  }

  // --- products: scales and sums of two neighbouring tokens are loaded at once

  static __device__ int place(int token, int group, int) {
    return (group * kStepTokens + token) * 4;
  }

  __device__ FloatDot(const StepShared& s, uint32_t shared, int m, int lane)
      : x_(shared + s.x + min(lane % 8, m - 1) * s.x_stride + lane / 8 * 16),
        x_scales_(shared + s.x_scales + lane % 4 * 8),
        x_sums_(shared + s.x_sums + lane % 4 * 8),
        m_(m),
        lane_(lane) {}

  __device__ void clear() {
    accumulators_.clear();
  }

  /// Adds unit `unit` of a strip.
  template <bool kOneGroup>
  __device__ void add(const Reader& reader, const PairPlace (&places)[2], int unit,
                      const Table& table) {
    if constexpr (HasSuperblocks<Decoder>) return add_pair_by_pair(reader, places, unit, table);
    const uint32_t inputs = x_ + unit * kUnitCols * 2;
    accumulators_.template add_pairs<kOneGroup, 2, true>(
        reader, places, table, x_sums_ + unit * kUnitTiles * kGroups * kOfTokens,
        [&](int tile, int step, int, uint32_t(&b)[4]) {
          ldmatrix_x4(b, inputs + (tile * kTileCols + step * kStepCols) * 2);
        },
        x_scales_ + unit * (kUnitCols / kInputGroup) * kOfTokens);
  }

  __device__ void store(float* to) const {
    accumulators_.store(to, lane_, m_, false);
  }

 private:
  static constexpr int kOfTokens = kStepTokens * 4;

  /// Where groups have scales that are computed: those of inputs are applied to the sums of a pair,
  /// which is an input group.
  __device__ void add_pair_by_pair(const Reader& reader, const PairPlace (&places)[2], int unit,
                                   const Table& table) {
    static_assert(kInputGroup == 2 * kTileCols);
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const uint32_t inputs = x_ + (unit * kUnitCols + pair * kInputGroup) * 2;
      const int first_group = (unit * kUnitTiles + 2 * pair) * kGroups;
      PairAccumulators<Number, Decoder, kGroups, 1> sums;
      sums.clear();
      sums.template add_pairs<false>(
          reader, {places[pair]}, table, x_sums_ + first_group * kOfTokens,
          [&](int tile, int step, int, uint32_t(&b)[4]) {
            ldmatrix_x4(b, inputs + (tile * kTileCols + step * kStepCols) * 2);
          });
      accumulators_.add_scaled(sums, x_scales_ + (2 * unit + pair) * kOfTokens);
    }
  }

  static __device__ float sum_of(uint32_t pair) {
    return Number::to_float(static_cast<uint16_t>(pair)) +
           Number::to_float(static_cast<uint16_t>(pair >> 16));
  }

  const uint32_t x_;  // of this lane's row of the matrices that it loads
  const uint32_t x_scales_;
  const uint32_t x_sums_;
  const int m_;
  const int lane_;
  PairAccumulators<Number, Decoder, kGroups, 1> accumulators_;
};

}  // namespace subbyte::cuda
