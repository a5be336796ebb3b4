#pragma once
// What gemv, small_m and the kernel of a step share: how a pair of neighbouring K tiles gets from a
// slot of a ring in shared memory into the tensor cores, and the protocol of that ring.
//
// Each warp has a ring of slots of its own, so that no main loop has a barrier of the CTA. A slot
// holds the codes of some tiles with their scales and zero points (weight_stream.cuh of the kernel
// says what). It goes through four steps, and the comments of the main loops name them:
//
//   fill      every lane starts its cp.async for the slot and commits them as one group; an empty
//             one where nothing is left to copy, so that groups count slots
//   wait      cp.async.wait_group<depth - 1>: all but the last depth - 1 groups of this lane are
//             there
//   publish   __syncwarp(): so are those of the other lanes; then the slot is read
//   release   __syncwarp() after the last read: then the slot may be filled again
//
//   small_m   `depth` slots       wait, publish, read slot i, release, fill slot i
//   gemv      `depth` + 1 slots   wait, publish slot i and release slot i - 1 by the same
//                                 __syncwarp(), fill slot i - 1, read slot i
//
// Invariants: (1) at each wait, slots that were filled less slots that were read is `depth`; (2) no
// lane writes to a slot between its publish and its release; (3) a slot is filled by the lanes of
// its own warp only. Copies are waited for by number because loads to registers would share the six
// scoreboards of a warp: waiting for the oldest would be waiting for all.
//
// What is read is multiplied with mma.m16n8k16: operand A is 16 outputs x 16 inputs of decoded
// weights, B 16 inputs x 8 tokens. Codes of integers are multiplied raw, with the zero point left
// in (gpu/decoders.h). Scales and zero points are applied in float32 at the end of each group:
//
//   sum over the group of (q - z) x  =  sum q x  -  z sum x
//
// and sum_inputs() computes the sums of x once for a CTA or a warp. Scales and offsets of two
// levels are products in float32, without a rounding; zero points beside them are constants of the
// kernel.

#include <cstdint>

#include "kernels/cuda/common/pair_reader.cuh"
#include "kernels/cuda/common/prologue_epilogue.cuh"
#include "kernels/cuda/common/ptx.cuh"
#include "kernels/gpu/decoders.h"

namespace subbyte::cuda {

/// Sums of the inputs of a group of kGroupSteps steps, of 8 tokens: a product with ones.
/// load_b(step, b) sets b to the step's two registers of operand B. Lanes 0 to 3 store two tokens
/// each, to to[0] and to[1] of their own `to`.
template <class Number, int kGroupSteps, class LoadB>
__device__ __forceinline__ void sum_inputs(float* to, int lane, const LoadB& load_b) {
  const uint32_t one = Number::splat_float(1);
  const uint32_t ones[4] = {one, one, one, one};
  float d[2][4] = {};  // two chains of products, so that they overlap
#pragma unroll
  for (int step = 0; step < kGroupSteps; ++step) {
    uint32_t b[2];
    load_b(step, b);
    mma<Number>(d[step % 2], ones, b[0], b[1]);
  }
  if (lane < 4) *reinterpret_cast<float2*>(to) = {d[0][0] + d[1][0], d[0][1] + d[1][1]};
}

template <class Decoder>
__device__ constexpr float raw_factor() {
  if constexpr (Decoder::kHasZeros) return Decoder::kRawFactor;
  return 1;
}

template <class Decoder>
__device__ constexpr float raw_odd() {
  if constexpr (Decoder::kHasZeros) return Decoder::kRawOdd;
  return 1;
}

/// The accumulators of a warp: one strip, 8 * kTokens8 tokens.
template <class Number, class Decoder, int kGroups, int kTokens8>
class PairAccumulators {
 public:
  static constexpr int kTokens = 8 * kTokens8;
  static constexpr int kStepsPerGroup = kSteps / kGroups;
  /// Tiles whose products are interleaved, so that one has something to do while the other waits.
  /// With many tokens there is enough to do in one.
  static constexpr int kInterleaved = kTokens8 <= 2 ? 2 : 1;
  using Reader = PairReader<Decoder, kGroups>;
  static constexpr bool kZerosBeside = Reader::kZeroBytes > 0;

  __device__ void clear() { clear(accumulators_); }

  /// Multiplies kPairs neighbouring pairs and accumulates; with two of them all four tiles are
  /// interleaved. load_b(tile, step, n, b) sets b to operand B of two steps of a tile, of the n-th
  /// 8 tokens; x_sums is the shared address of the input sums of this lane's two tokens in the
  /// first group. kOneGroup: a pair has one scale for each row. kScaled: inputs have scales, too,
  /// one for each token and pair, of this lane's two tokens at the shared address x_scales.
  template <bool kOneGroup, int kPairs = 1, bool kScaled = false, class AnyTable, class LoadB>
  __device__ __forceinline__ void add_pairs(const Reader& reader, const PairPlace (&places)[kPairs],
                                            const AnyTable& table, uint32_t x_sums,
                                            const LoadB& load_b, uint32_t x_scales = 0) {
    static_assert(!kScaled || kTokens8 == 1);
    constexpr int kTiles = kOneGroup ? 1 : 2;
    constexpr int kAtOnce = kPairs == 1 ? kInterleaved : 2 * kPairs;
    typename Reader::Scales scales[kPairs];
    float2 of_inputs[kPairs];
#pragma unroll
    for (int p = 0; p < kPairs; ++p) {
      of_inputs[p] = input_scales<kScaled>(x_scales + p * kTokens * 4);
      const uint32_t sums = x_sums + p * kTiles * kGroups * kTokens * 4;
      reader.template read_scales<kTiles>(places[p], scales[p], [&] {
        add_offsets<kTiles, kScaled>(reader, places[p], sums, of_inputs[p]);
      });
      if constexpr (kZerosBeside) reader.template read_zeros<kTiles>(places[p], scales[p]);
    }
    float group[kAtOnce][kTokens8][4];
#pragma unroll
    for (int first = 0; first < 2 * kPairs; first += kAtOnce) {
      uint32_t codes[kAtOnce][Reader::kWords];
      uint32_t b[kAtOnce][kTokens8][4];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        reader.read_codes(places[(first + i) / 2], (first + i) % 2, codes[i]);
      }
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const int tile = first + i;
          const int g = step / kStepsPerGroup;
          const bool is_begin = kOneGroup ? step == 0 && first == 0 : step % kStepsPerGroup == 0;
          if (is_begin) clear(group[i]);
          if (step % 2 == 0) {
#pragma unroll
            for (int n = 0; n < kTokens8; ++n) load_b(tile, step, n, b[i][n]);
          }
          uint32_t registers[4];
          decode_raw<Decoder>(codes[i], step, table, registers);
#pragma unroll
          for (int n = 0; n < kTokens8; ++n) {
            mma<Number>(group[i][n], registers, b[i][n][step % 2 * 2], b[i][n][step % 2 * 2 + 1]);
          }
          if (!kOneGroup && (step + 1) % kStepsPerGroup == 0) {
            const typename Reader::Scales& of_pair = scales[tile / 2];
            end_group<kScaled>(group[i], of_pair.scales[tile % 2][g], of_pair.zeros[tile % 2][g],
                               x_sums + (tile * kGroups + g) * kTokens * 4, of_inputs[tile / 2]);
          }
        }
      }
    }
    if constexpr (kOneGroup) {
#pragma unroll
      for (int p = 0; p < kPairs; ++p) {
        if constexpr (kAtOnce > 1) add(group[2 * p], group[2 * p + 1]);
        end_group<kScaled>(group[kAtOnce > 1 ? 2 * p : 0], scales[p].scales[0][0],
                           scales[p].zeros[0][0], x_sums + p * kTokens * 4, of_inputs[p]);
      }
    }
  }

  /// Adds sums of inputs that have scales, one for each token, of this lane's two tokens at that
  /// shared address.
  __device__ void add_scaled(const PairAccumulators& from, uint32_t x_scales) {
    static_assert(kTokens8 == 1);
    const float2 of_inputs = input_scales<true>(x_scales);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      accumulators_[0][i] = fmaf(i % 2 == 0 ? of_inputs.x : of_inputs.y, from.accumulators_[0][i],
                                 accumulators_[0][i]);
    }
  }

  /// Stores the sums to [token][kPartialStride], or adds them to what is there.
  __device__ void store(float* to, int lane, int tokens, bool adds) const {
    constexpr float kFactors[] = {1 / raw_factor<Decoder>(),
                                  1 / (raw_factor<Decoder>() * raw_odd<Decoder>())};
    const int row = lane / 4;
#pragma unroll
    for (int n = 0; n < kTokens8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int token = n * 8 + lane % 4 * 2 + i % 2;
        if (token >= tokens) continue;
        float& at = to[token * kPartialStride + row + i / 2 * 8];
        const float sum = accumulators_[n][i] * kFactors[i / 2];
        at = adds ? at + sum : sum;
      }
    }
  }

 private:
  static __device__ void clear(float (&d)[kTokens8][4]) {
#pragma unroll
    for (int n = 0; n < kTokens8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) d[n][i] = 0;
    }
  }

  static __device__ void add(float (&to)[kTokens8][4], const float (&from)[kTokens8][4]) {
#pragma unroll
    for (int n = 0; n < kTokens8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) to[n][i] += from[n][i];
    }
  }

  template <bool kScaled>
  static __device__ float2 input_scales(uint32_t at) {
    uint32_t scales[2] = {};
    if constexpr (kScaled) ld_shared<2>(scales, at);
    return {__uint_as_float(scales[0]), __uint_as_float(scales[1])};
  }

  /// A factor of element i of an accumulator, with the scale of its input.
  template <bool kScaled>
  static __device__ float scaled(float2 of_rows, float2 of_inputs, int i) {
    const float factor = i < 2 ? of_rows.x : of_rows.y;
    if constexpr (!kScaled) return factor;
    return factor * (i % 2 == 0 ? of_inputs.x : of_inputs.y);
  }

  /// Adds to the products of a group what its zero points contribute, and all that, scaled, to the
  /// accumulators.
  template <bool kScaled>
  __device__ void end_group(const float (&group)[kTokens8][4], float2 scale, float2 zeros,
                            uint32_t x_sums, float2 of_inputs) {
    constexpr bool kScaledZeros = kScaled && HasSuperblocks<Decoder>;
#pragma unroll
    for (int n = 0; n < kTokens8; ++n) {
      uint32_t inputs[2] = {};
      if constexpr (Decoder::kHasZeros) ld_shared<2>(inputs, x_sums + n * 8 * 4);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        add_group<Decoder, kGroups>(
            accumulators_[n][i], group[n][i], i >= 2, scaled<kScaled>(scale, of_inputs, i),
            scaled<kScaledZeros>(zeros, of_inputs, i), __uint_as_float(inputs[i % 2]));
      }
    }
  }

  /// Adds offset * sum of x of each group, times what raw products are too small or too large by.
  template <int kTiles, bool kScaled>
  __device__ void add_offsets(const Reader& reader, const PairPlace& place, uint32_t x_sums,
                              float2 of_inputs) {
#pragma unroll 1
    for (int tile = 0; tile < kTiles; ++tile) {
      float2 offsets[kGroups];
      reader.read_offsets(place, tile, offsets);
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        const float2 raw = {offsets[g].x * raw_factor<Decoder>(),
                            offsets[g].y * (raw_factor<Decoder>() * raw_odd<Decoder>())};
#pragma unroll
        for (int n = 0; n < kTokens8; ++n) {
          uint32_t inputs[2];
          ld_shared<2>(inputs, x_sums + ((tile * kGroups + g) * kTokens + n * 8) * 4);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            accumulators_[n][i] = fmaf(scaled<kScaled>(raw, of_inputs, i),
                                       __uint_as_float(inputs[i % 2]), accumulators_[n][i]);
          }
        }
      }
    }
  }

  float accumulators_[kTokens8][4];
};

}  // namespace subbyte::cuda
