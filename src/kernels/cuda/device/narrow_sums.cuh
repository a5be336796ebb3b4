#pragma once
// What a warp of narrow.cuh or gemv.cuh adds up: decoded weights times activations, scaled group
// by group.

#include <cstdint>

#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/device/pair_reader.cuh"
#include "kernels/cuda/device/shared_sizes.h"

namespace subbyte::cuda {

/// The sums of a warp: one strip, 8 * kTokens8 tokens.
template <class Number, class Decoder, int kGroups, int kTokens8>
class NarrowSums {
 public:
  static constexpr int kTokens = 8 * kTokens8;
  static constexpr int kStepsPerGroup = kSteps / kGroups;
  /// Tiles whose products are interleaved: one has something to do while the other waits. With
  /// many tokens there is enough to do in one.
  static constexpr int kTogether = kTokens8 <= 2 ? 2 : 1;
  using Reader = PairReader<Decoder, kGroups>;

  __device__ void clear() { clear(sums_); }

  /// Adds a pair. load_inputs(tile, step, n, b) sets b to the inputs of two steps of a tile, of
  /// the n-th 8 tokens; x_sums is the shared address of the sums of inputs of this lane's two
  /// tokens in the first group. kOneGroup: the pair has one scale for each row.
  template <bool kOneGroup, class LoadInputs>
  __device__ void add_pair(const Reader& reader, const PairPlace& place, const Table& table,
                           uint32_t x_sums, const LoadInputs& load_inputs) {
    constexpr int kTiles = kOneGroup ? 1 : 2;
    typename Reader::Scales scales;
    reader.template read_scales<kTiles>(place, scales,
                                        [&] { add_offsets<kTiles>(reader, place, x_sums); });
    float group[kTogether][kTokens8][4];
#pragma unroll
    for (int first = 0; first < 2; first += kTogether) {
      uint32_t codes[kTogether][Reader::kWords];
      uint32_t b[kTogether][kTokens8][4];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) reader.read_codes(place, first + i, codes[i]);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
          const int tile = first + i;
          const int g = step / kStepsPerGroup;
          const bool is_begin = kOneGroup ? step == 0 && first == 0 : step % kStepsPerGroup == 0;
          if (is_begin) clear(group[i]);
          if (step % 2 == 0) {
#pragma unroll
            for (int n = 0; n < kTokens8; ++n) {
              load_inputs(tile, step, n, b[i][n]);
            }
          }
          uint32_t registers[4];
          decode_raw<Decoder>(codes[i], step, table, registers);
#pragma unroll
          for (int n = 0; n < kTokens8; ++n) {
            mma<Number>(group[i][n], registers, b[i][n][step % 2 * 2], b[i][n][step % 2 * 2 + 1]);
          }
          if (!kOneGroup && (step + 1) % kStepsPerGroup == 0) {
            end_group(group[i], scales.scales[tile][g], scales.zeros[tile][g],
                      x_sums + (tile * kGroups + g) * kTokens * 4);
          }
        }
      }
    }
    if constexpr (kOneGroup) {
      if constexpr (kTogether == 2) add(group[0], group[1]);
      end_group(group[0], scales.scales[0][0], scales.zeros[0][0], x_sums);
    }
  }

  /// To [token][kSumStride], or added to what is there.
  __device__ void store(float* to, int lane, int tokens, bool adds) const {
    constexpr float kUnits[] = {1 / raw_unit<Decoder>(),
                                1 / (raw_unit<Decoder>() * raw_odd<Decoder>())};
    const int row = lane / 4;
#pragma unroll
    for (int n = 0; n < kTokens8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int token = n * 8 + lane % 4 * 2 + i % 2;
        if (token >= tokens) continue;
        float& at = to[token * kSumStride + row + i / 2 * 8];
        const float sum = sums_[n][i] * kUnits[i / 2];
        at = adds ? at + sum : sum;
      }
    }
  }

 private:
  static __device__ void clear(float (&sums)[kTokens8][4]) {
#pragma unroll
    for (int n = 0; n < kTokens8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[n][i] = 0;
    }
  }

  static __device__ void add(float (&to)[kTokens8][4], const float (&from)[kTokens8][4]) {
#pragma unroll
    for (int n = 0; n < kTokens8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) to[n][i] += from[n][i];
    }
  }

  /// Adds to the sums of a group what its zero points contribute, and all that, scaled, to the
  /// rest.
  __device__ void end_group(const float (&group)[kTokens8][4], float2 scale, float2 zeros,
                            uint32_t x_sums) {
#pragma unroll
    for (int n = 0; n < kTokens8; ++n) {
      uint32_t inputs[2] = {};
      if constexpr (Decoder::kHasZeros) read_shared<2>(inputs, x_sums + n * 8 * 4);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float sum = group[n][i];
        if constexpr (Decoder::kHasZeros) {
          sum = fmaf(i < 2 ? zeros.x : zeros.y, __uint_as_float(inputs[i % 2]), sum);
        }
        sums_[n][i] = fmaf(i < 2 ? scale.x : scale.y, sum, sums_[n][i]);
      }
    }
  }

  /// Adds offset * sum of x of each group, in the units of the sums.
  template <int kTiles>
  __device__ void add_offsets(const Reader& reader, const PairPlace& place, uint32_t x_sums) {
#pragma unroll 1
    for (int tile = 0; tile < kTiles; ++tile) {
      float2 offsets[kGroups];
      reader.read_offsets(place, tile, offsets);
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        const float low = offsets[g].x * raw_unit<Decoder>();
        const float high = offsets[g].y * (raw_unit<Decoder>() * raw_odd<Decoder>());
#pragma unroll
        for (int n = 0; n < kTokens8; ++n) {
          uint32_t inputs[2];
          read_shared<2>(inputs, x_sums + ((tile * kGroups + g) * kTokens + n * 8) * 4);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            sums_[n][i] = fmaf(i < 2 ? low : high, __uint_as_float(inputs[i % 2]), sums_[n][i]);
          }
        }
      }
    }
  }

  float sums_[kTokens8][4];
};

}  // namespace subbyte::cuda
