#pragma once
// A warp's pair of neighbouring tiles in shared memory: how its codes, scales and zero points come
// to registers. Streams (small_m/weight_stream.cuh, gemv/weight_stream.cuh) bring them there and
// say where they lie.

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

/// A value that the compiler keeps instead of computing it again and again.
__device__ __forceinline__ int in_register(int value) {
  int kept;
  asm volatile("mov.u32 %0, %1;" : "=r"(kept) : "r"(value));
  return kept;
}

/// Where a pair is, as shared addresses of this lane's part of tile 0.
struct PairPlace {
  uint32_t codes;
  uint32_t scales;   // of its two rows in the first group, which are neighbours
  uint32_t zeros;    // the same
  uint32_t offsets;  // the same, of 2 bytes each
  int next_block;    // 1: tile 1 has the block of scales behind that of tile 0; 0: the same
};

/// kGroups: groups of a tile (1, 2 or 4); with 1 a group may also be several tiles.
template <class Decoder, int kGroups>
class PairReader {
 public:
  static constexpr int kWords = Decoder::kBits;
  static constexpr int kFirst = first_piece(kWords);
  static constexpr int kSecond = second_piece(kWords);
  static constexpr int kTileBytes = tile_bytes(kWords);
  static constexpr int kZeroBytes = zero_bytes_of<Decoder>();
  static constexpr int kBlock = kGroups * kStripRows;  // scales of a tile's block

  /// Of the two rows of a lane in each group of two tiles.
  struct Scales {
    float2 scales[2][kGroups];
    float2 zeros[2][kGroups];  // what is to be added for each input, in raw units; 0 without zeros
  };

  /// `scale_values`: of fill_scale_values(), a shared address.
  __device__ PairReader(const WeightArguments& weights, uint32_t scale_values, int lane)
      : w_(weights),
        scale_values_(scale_values),
        scale_kind_(in_register((weights.scale.shift == 16 ? 3 : weights.scale.bytes) +
                                (weights.zero_kind == ZeroKind::kInteger ? 0 : kOffsets))),
        lane_(lane) {}

  /// Zero points are the same everywhere: none are in memory, or offsets instead.
  static __device__ bool has_constant_zeros(const WeightArguments& w) {
    return w.zeros == nullptr || w.zero_kind != ZeroKind::kInteger;
  }
  /// Writes the constant zero points of a slot, by all lanes.
  __device__ void fill_zeros(uint32_t begin, uint32_t end) const {
    const uint32_t zeros = w_.zero * (kZeroBytes == 1 ? 0x01010101u : 0x00010001u);
    for (uint32_t at = begin + lane_ * 4; at < end; at += kLanes * 4) write_shared(at, zeros);
  }

  /// The words of tile `tile` (0 or 1) of the pair.
  __device__ void read_codes(const PairPlace& place, int tile, uint32_t (&words)[kWords]) const {
    const uint32_t at = place.codes + tile * kTileBytes;
    read_shared<kFirst>(words, at);
    if constexpr (kSecond > 0) {
      read_shared<kSecond>(words + kFirst,
                           at + kLanes * kFirst * 4 + lane_ * (kSecond - kFirst) * 4);
    }
  }

  /// kTiles: 1 if both tiles have the same scales, which come as those of the first. Calls
  /// add_offsets() if there are offsets; to ask costs nothing where scales are f16 and there are
  /// none.
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

  /// Those of tile `tile`, of the two rows of a lane.
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
      const uint32_t both = read_shared_u16(at);
      rows[0][0] = both & 0xff;
      rows[0][1] = both >> 8;
    } else {
      uint32_t words[kBytes / 4];
      read_shared<kBytes / 4>(words, at);
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
      read_shared<1>(&value, scale_values_ + code * 4);
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
        words[0] = read_shared_u16(at);
      } else {
        read_shared<kBytes / 4>(words, at);
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

  /// -kRawUnit (kRawOffset + factor zero), of the zero in the mantissa of 2^23: exact, and one FMA.
  static __device__ float to_add(uint32_t mantissa, int factor) {
    constexpr float kUnit = Decoder::kRawUnit;
    const float f = static_cast<float>(factor);
    return fmaf(__uint_as_float(mantissa), -kUnit * f, kUnit * (f * 0x1p23f - Decoder::kRawOffset));
  }

  const WeightArguments& w_;
  const uint32_t scale_values_;
  const int scale_kind_;  // bytes, or 3: bf16; and kOffsets
  const int lane_;
};

template <class Decoder>
__device__ constexpr float raw_unit() {
  if constexpr (Decoder::kHasZeros) return Decoder::kRawUnit;
  return 1;
}

template <class Decoder>
__device__ constexpr float raw_odd() {
  if constexpr (Decoder::kHasZeros) return Decoder::kRawOdd;
  return 1;
}

/// The sums of a warp: one strip, 8 * kTokens8 tokens.
template <class Number, class Decoder, int kGroups, int kTokens8>
class PairAccumulators {
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

  /// To [token][kPartialStride], or added to what is there.
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
        float& at = to[token * kPartialStride + row + i / 2 * 8];
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
