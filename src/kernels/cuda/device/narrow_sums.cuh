#pragma once
// What a warp of narrow.cuh adds up: decoded weights times activations, scaled group by group.

#include <cstdint>

#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/device/pair_stream.cuh"

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
  using Stream = PairStream<Decoder, kGroups>;

  __device__ void clear() {
#pragma unroll
    for (int n = 0; n < kTokens8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums_[n][i] = 0;
    }
  }

  /// Adds the pair that the stream is at. `x` is the shared address of this lane's row of ldmatrix
  /// for the first tile, for each 8 tokens, x_sums that of the sums of inputs of this lane's two
  /// tokens in the first group. kOneGroup: the pair has one scale for each row.
  template <bool kOneGroup>
  __device__ void add_pair(const Stream& stream, const Table& table, const uint32_t (&x)[kTokens8],
                           uint32_t x_sums) {
    constexpr int kTiles = kOneGroup ? 1 : 2;
    typename Stream::Scales scales;
    stream.template read_scales<kTiles>(scales, [&] { add_offsets<kTiles>(stream, x_sums); });
    float group[kOneGroup ? 1 : kTogether][kTokens8][4];
#pragma unroll
    for (int first = 0; first < 2; first += kTogether) {
      uint32_t codes[kTogether][Stream::kWords];
      uint32_t b[kTogether][kTokens8][4];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) stream.read_codes(first + i, codes[i]);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
          const int tile = first + i;
          const int g = step / kStepsPerGroup;
          float(&sums)[kTokens8][4] = group[kOneGroup ? 0 : i];
          if (step % kStepsPerGroup == 0 && (!kOneGroup || tile == 0)) {
            begin_group(sums, scales.zeros[tile][g], x_sums + (tile * kGroups + g) * kTokens * 4);
          }
          if (step % 2 == 0) {
#pragma unroll
            for (int n = 0; n < kTokens8; ++n) {
              load_matrices(b[i][n], x[n] + (tile * kTileCols + step * kStepCols) * 2);
            }
          }
          uint32_t registers[4];
          decode_raw<Decoder>(codes[i], step, table, registers);
#pragma unroll
          for (int n = 0; n < kTokens8; ++n) {
            mma<Number>(sums[n], registers, b[i][n][step % 2 * 2], b[i][n][step % 2 * 2 + 1]);
          }
          if ((step + 1) % kStepsPerGroup == 0 && (!kOneGroup || (tile == 1 && step == 3))) {
            add_scaled(sums, scales.scales[kOneGroup ? 0 : tile][g]);
          }
        }
      }
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
  static __device__ void fill(float (&sums)[kTokens8][4], float value) {
#pragma unroll
    for (int n = 0; n < kTokens8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[n][i] = value;
    }
  }

  /// Adds offset * sum of x of each group, in the units of the sums.
  template <int kTiles>
  __device__ void add_offsets(const Stream& stream, uint32_t x_sums) {
    constexpr float kEven = raw_unit<Decoder>();
    constexpr float kOdd = raw_unit<Decoder>() * raw_odd<Decoder>();
#pragma unroll 1
    for (int tile = 0; tile < kTiles; ++tile) {
      float2 offsets[kGroups];
      stream.read_offsets(tile, offsets);
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        float group[kTokens8][4];
        begin_group(group, {1, 1}, x_sums + (tile * kGroups + g) * kTokens * 4);
        add_scaled(group, {offsets[g].x * kEven, offsets[g].y * kOdd});
      }
    }
  }

  /// Sums begin with what the zero points contribute.
  static __device__ void begin_group(float (&group)[kTokens8][4], float2 zeros, uint32_t x_sums) {
    if constexpr (!Decoder::kHasZeros) {
      fill(group, 0);
    } else {
#pragma unroll
      for (int n = 0; n < kTokens8; ++n) {
        uint32_t sums[2];
        read_shared<2>(sums, x_sums + n * 8 * 4);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          group[n][i] = (i < 2 ? zeros.x : zeros.y) * __uint_as_float(sums[i % 2]);
        }
      }
    }
  }

  __device__ void add_scaled(const float (&group)[kTokens8][4], float2 scale) {
#pragma unroll
    for (int n = 0; n < kTokens8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sums_[n][i] = fmaf(i < 2 ? scale.x : scale.y, group[n][i], sums_[n][i]);
      }
    }
  }

  float sums_[kTokens8][4];
};

}  // namespace subbyte::cuda
