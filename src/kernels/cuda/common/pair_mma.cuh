#pragma once
// What gemv and small_m share: how a pair of neighbouring K tiles gets from a slot of a ring in
// shared memory into the tensor cores, and the protocol of that ring.
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
// and sum_inputs() computes the sums of x once for a CTA or a warp.

#include <cstdint>

#include "kernels/cuda/common/arguments.h"
#include "kernels/cuda/common/prologue_epilogue.cuh"
#include "kernels/cuda/common/ptx.cuh"
#include "kernels/gpu/decoders.h"

namespace subbyte::cuda {

/// Zero points are bytes, but those of 8 bits, which may be 256.
template <class Decoder>
__host__ __device__ constexpr int zero_bytes_of() {
  return !Decoder::kHasZeros ? 0 : Decoder::kBits == 8 ? 2 : 1;
}

/// Where a pair is, as shared addresses of this lane's part of tile 0.
struct PairPlace {
  uint32_t codes;
  uint32_t scales;   // of the lane's two rows in the first group, which are neighbours
  uint32_t zeros;    // the same
  uint32_t offsets;  // the same, of 2 bytes each
  int next_block;    // 1: tile 1 has the scale block after that of tile 0; 0: the same
};

/// Reads pairs of tiles. kGroups: quantization groups of a tile (1, 2 or 4); with 1 a group may
/// also be several tiles.
template <class Decoder, int kGroups>
class PairReader {
 public:
  static constexpr int kWords = Decoder::kBits;
  static constexpr int kFirst = first_piece(kWords);
  static constexpr int kSecond = second_piece(kWords);
  static constexpr int kTileBytes = tile_bytes(kWords);
  static constexpr int kZeroBytes = zero_bytes_of<Decoder>();
  static constexpr int kBlock = kGroups * kStripRows;  // scales of a scale block

  /// Of a lane's two rows in each group of two tiles.
  struct Scales {
    float2 scales[2][kGroups];
    float2 zeros[2][kGroups];  // to add for each input, times kRawFactor; unset without zeros
  };

  /// `scale_values`: of fill_scale_values(), a shared address.
  __device__ PairReader(const WeightArguments& weights, uint32_t scale_values, int lane)
      : w_(weights),
        scale_values_(scale_values),
        scale_kind_(keep_in_register((weights.scale.shift == 16 ? 3 : weights.scale.bytes) +
                                     (weights.zero_kind == ZeroKind::kInteger ? 0 : kOffsets))),
        lane_(lane) {}

  /// Zero points are the same everywhere: there are none in memory, or offsets instead.
  static __device__ bool has_constant_zeros(const WeightArguments& w) {
    return w.zeros == nullptr || w.zero_kind != ZeroKind::kInteger;
  }
  /// Writes the constant zero points of a slot, by all lanes of the warp.
  __device__ void fill_zeros(uint32_t begin, uint32_t end) const {
    const uint32_t zeros = w_.zero * (kZeroBytes == 1 ? 0x01010101u : 0x00010001u);
    for (uint32_t at = begin + lane_ * 4; at < end; at += kLanes * 4) st_shared(at, zeros);
  }

  /// The words of tile `tile` (0 or 1) of the pair.
  __device__ void read_codes(const PairPlace& place, int tile, uint32_t (&words)[kWords]) const {
    const uint32_t at = place.codes + tile * kTileBytes;
    ld_shared<kFirst>(words, at);
    if constexpr (kSecond > 0) {
      ld_shared<kSecond>(words + kFirst, at + kLanes * kFirst * 4 + lane_ * (kSecond - kFirst) * 4);
    }
  }

  /// kTiles: 1 if both tiles have the same scales, which come as those of the first. Calls
  /// add_offsets() if there are offsets. One test finds that scales are f16 and that there are no
  /// offsets, so offsets cost the common case nothing.
  template <int kTiles, class AddOffsets>
  __device__ void read_scales(const PairPlace& place, Scales& to,
                              const AddOffsets& add_offsets) const {
    if (scale_kind_ == 2) {
      read_scales_of<F16, 2, kTiles>(place, to);
    } else {
      if (Decoder::kHasZeros && scale_kind_ >= kOffsets) add_offsets();
      read_other_scales<kTiles>(place, to, scale_kind_ % kOffsets);
    }
    if constexpr (Decoder::kHasZeros) read_zeros<kTiles>(place, to);
  }

  /// The offsets of tile `tile`, of a lane's two rows.
  __device__ void read_offsets(const PairPlace& place, int tile, float2 (&to)[kGroups]) const {
    uint32_t rows[kGroups][2];
    read_rows<2>(place.offsets + tile * place.next_block * kBlock * 2, rows);
    const bool is_f16 = w_.zero_kind == ZeroKind::kF16;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      to[g] = is_f16 ? float2{scale_of<F16, 2>(rows[g][0]), scale_of<F16, 2>(rows[g][1])}
                     : float2{scale_of<BF16, 2>(rows[g][0]), scale_of<BF16, 2>(rows[g][1])};
    }
  }

 private:
  static constexpr int kOffsets = 8;  // in scale_kind_

  /// kSize bytes for each of a lane's two rows and each group of a tile, which are neighbours.
  template <int kSize>
  static __device__ void read_rows(uint32_t at, uint32_t (&rows)[kGroups][2]) {
    constexpr int kBytes = 2 * kGroups * kSize;
    if constexpr (kBytes == 2) {
      const uint32_t both = ld_shared_u16(at);
      rows[0][0] = both & 0xff;
      rows[0][1] = both >> 8;
    } else {
      uint32_t words[kBytes / 4];
      ld_shared<kBytes / 4>(words, at);
#pragma unroll
      for (int i = 0; i < 2 * kGroups; ++i) {
        constexpr uint32_t kMask = kSize == 4 ? ~0u : (1u << 8 * kSize % 32) - 1;
        rows[i / 2][i % 2] = words[i * kSize / 4] >> i * kSize % 4 * 8 & kMask;
      }
    }
  }

  template <int kTiles>
  __device__ void read_other_scales(const PairPlace& place, Scales& to, int kind) const {
    if (kind == 1) {
      read_scales_of<F16, 1, kTiles>(place, to);
    } else if (kind == 3) {
      read_scales_of<BF16, 2, kTiles>(place, to);
    } else if (Decoder::kHasZeros && kind == 2) {
      read_scales_of<F16, 2, kTiles>(place, to);
    } else {
      read_scales_of<F16, 4, kTiles>(place, to);
    }
  }

  template <class Number, int kSize, int kTiles>
  __device__ void read_scales_of(const PairPlace& place, Scales& to) const {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      uint32_t rows[kGroups][2];
      read_rows<kSize>(place.scales + tile * place.next_block * kBlock * kSize, rows);
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        to.scales[tile][g] = {scale_of<Number, kSize>(rows[g][0]),
                              scale_of<Number, kSize>(rows[g][1])};
      }
    }
  }

  template <class Number, int kSize>
  __device__ float scale_of(uint32_t code) const {
    if constexpr (kSize == 1) {
      uint32_t value;
      ld_shared<1>(&value, scale_values_ + code * 4);
      return __uint_as_float(value);
    }
    if constexpr (kSize == 2) return Number::to_float(static_cast<uint16_t>(code));
    return __uint_as_float(code);
  }

  template <int kTiles>
  __device__ void read_zeros(const PairPlace& place, Scales& to) const {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      constexpr int kBytes = 2 * kGroups * kZeroBytes;  // of a lane
      const uint32_t at = place.zeros + tile * place.next_block * kBlock * kZeroBytes;
      uint32_t words[(kBytes + 3) / 4];
      if constexpr (kBytes == 2) {
        words[0] = ld_shared_u16(at);
      } else {
        ld_shared<kBytes / 4>(words, at);
      }
#pragma unroll
      for (int i = 0; i < 2 * kGroups; ++i) {
        // One or two bytes below 0x4b00 or 0x4b: the number 2^23 + zero.
        const uint32_t select = kZeroBytes == 1 ? 0x7650 + i % 4 : i % 2 == 0 ? 0x7610 : 0x7632;
        const uint32_t mantissa = __byte_perm(words[i * kZeroBytes / 4], 0x4b000000u, select);
        float& zero = i % 2 == 0 ? to.zeros[tile][i / 2].x : to.zeros[tile][i / 2].y;
        zero = to_add(mantissa, i % 2 == 0 ? 1 : Decoder::kRawOdd);
      }
    }
  }

  /// -kRawFactor (kRawOffset + factor * zero), of a zero in the mantissa of 2^23: one FMA, exact.
  static __device__ float to_add(uint32_t mantissa, int factor) {
    constexpr float kFactor = Decoder::kRawFactor;
    const float f = static_cast<float>(factor);
    return fmaf(__uint_as_float(mantissa), -kFactor * f,
                kFactor * (f * 0x1p23f - Decoder::kRawOffset));
  }

  const WeightArguments& w_;
  const uint32_t scale_values_;
  const int scale_kind_;  // bytes, or 3: bf16; and kOffsets
  const int lane_;
};

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

  __device__ void clear() { clear(accumulators_); }

  /// Multiplies kPairs neighbouring pairs and accumulates; with two of them all four tiles are
  /// interleaved. load_b(tile, step, n, b) sets b to operand B of two steps of a tile, of the n-th
  /// 8 tokens; x_sums is the shared address of the input sums of this lane's two tokens in the
  /// first group. kOneGroup: a pair has one scale for each row.
  template <bool kOneGroup, int kPairs = 1, class LoadB>
  __device__ void add_pairs(const Reader& reader, const PairPlace (&places)[kPairs],
                            const Table& table, uint32_t x_sums, const LoadB& load_b) {
    constexpr int kTiles = kOneGroup ? 1 : 2;
    constexpr int kAtOnce = kPairs == 1 ? kInterleaved : 2 * kPairs;
    typename Reader::Scales scales[kPairs];
#pragma unroll
    for (int p = 0; p < kPairs; ++p) {
      const uint32_t sums = x_sums + p * kTiles * kGroups * kTokens * 4;
      reader.template read_scales<kTiles>(places[p], scales[p],
                                          [&] { add_offsets<kTiles>(reader, places[p], sums); });
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
            for (int n = 0; n < kTokens8; ++n) {
              load_b(tile, step, n, b[i][n]);
            }
          }
          uint32_t registers[4];
          decode_raw<Decoder>(codes[i], step, table, registers);
#pragma unroll
          for (int n = 0; n < kTokens8; ++n) {
            mma<Number>(group[i][n], registers, b[i][n][step % 2 * 2], b[i][n][step % 2 * 2 + 1]);
          }
          if (!kOneGroup && (step + 1) % kStepsPerGroup == 0) {
            const typename Reader::Scales& of_pair = scales[tile / 2];
            end_group(group[i], of_pair.scales[tile % 2][g], of_pair.zeros[tile % 2][g],
                      x_sums + (tile * kGroups + g) * kTokens * 4);
          }
        }
      }
    }
    if constexpr (kOneGroup) {
#pragma unroll
      for (int p = 0; p < kPairs; ++p) {
        if constexpr (kAtOnce > 1) add(group[2 * p], group[2 * p + 1]);
        end_group(group[kAtOnce > 1 ? 2 * p : 0], scales[p].scales[0][0], scales[p].zeros[0][0],
                  x_sums + p * kTokens * 4);
      }
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

  /// Adds to the products of a group what its zero points contribute, and all that, scaled, to the
  /// accumulators.
  __device__ void end_group(const float (&group)[kTokens8][4], float2 scale, float2 zeros,
                            uint32_t x_sums) {
#pragma unroll
    for (int n = 0; n < kTokens8; ++n) {
      uint32_t inputs[2] = {};
      if constexpr (Decoder::kHasZeros) ld_shared<2>(inputs, x_sums + n * 8 * 4);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float sum = group[n][i];
        if constexpr (Decoder::kHasZeros) {
          sum = fmaf(i < 2 ? zeros.x : zeros.y, __uint_as_float(inputs[i % 2]), sum);
        }
        accumulators_[n][i] = fmaf(i < 2 ? scale.x : scale.y, sum, accumulators_[n][i]);
      }
    }
  }

  /// Adds offset * sum of x of each group, times what raw products are too small or too large by.
  template <int kTiles>
  __device__ void add_offsets(const Reader& reader, const PairPlace& place, uint32_t x_sums) {
#pragma unroll 1
    for (int tile = 0; tile < kTiles; ++tile) {
      float2 offsets[kGroups];
      reader.read_offsets(place, tile, offsets);
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        const float low = offsets[g].x * raw_factor<Decoder>();
        const float high = offsets[g].y * (raw_factor<Decoder>() * raw_odd<Decoder>());
#pragma unroll
        for (int n = 0; n < kTokens8; ++n) {
          uint32_t inputs[2];
          ld_shared<2>(inputs, x_sums + ((tile * kGroups + g) * kTokens + n * 8) * 4);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            accumulators_[n][i] =
                fmaf(i < 2 ? low : high, __uint_as_float(inputs[i % 2]), accumulators_[n][i]);
          }
        }
      }
    }
  }

  float accumulators_[kTokens8][4];
};

}  // namespace subbyte::cuda
