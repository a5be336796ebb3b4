#pragma once
// What is in a slot of weights in shared memory, as lanes read it: the codes, scales, zero points
// and offsets of a pair of neighbouring K tiles (pair_mma.cuh says how slots are used).

#include <cstdint>

#include "kernels/cuda/common/arguments.h"
#include "kernels/cuda/common/prologue_epilogue.cuh"
#include "kernels/cuda/common/ptx.cuh"
#include "kernels/cuda/common/two_levels.cuh"
#include "kernels/gpu/decoders.h"

namespace subbyte::cuda {

/// Zero points are bytes, but those of 8 bits, which may be 256. Beside scales of two levels they
/// are constants of the kernel.
template <class Decoder>
__host__ __device__ constexpr int zero_bytes_of() {
  return !Decoder::kHasZeros || HasSuperblocks<Decoder> ? 0 : Decoder::kBits == 8 ? 2 : 1;
}

/// Where a pair is, as shared addresses of this lane's part of tile 0.
struct PairPlace {
  uint32_t codes;
  uint32_t scales;   // of the lane's two rows in the first group, which are neighbours; of two
                     // levels the integers of tile 0
  uint32_t zeros;    // the same; of two levels the factors
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
  static constexpr uint32_t k2To23 = 0x4b000000;       // as a float

  /// Of a lane's two rows in each group of two tiles.
  struct Scales {
    float2 scales[2][kGroups];
    float2 zeros[2][kGroups];  // to add for each input, times kRawFactor; unset without zeros;
                               // of two levels offsets, times the same
  };

  /// `scale_values`: of fill_scale_values(), a shared address.
  __device__ PairReader(const WeightArguments& weights, uint32_t scale_values, int lane)
      : w_(weights),
        scale_values_(scale_values),
        bytes_(weights.scale.bytes),
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
      const uint32_t second = at + kLanes * kFirst * 4 + lane_ * (kSecond - kFirst) * 4;
#pragma unroll
      for (int i = 0; i < pieces_after_first(kWords); ++i) {
        ld_shared<kSecond>(words + kFirst + i * kSecond, second + i * kLanes * kSecond * 4);
      }
    }
  }

  /// kTiles: 1 if both tiles have the same scales, which come as those of the first. Leaves zeros
  /// alone. Calls add_offsets() if there are offsets. One test finds that scales are f16 and that
  /// there are no offsets, so offsets cost the common case nothing.
  template <int kTiles, class AddOffsets>
  __device__ void read_scales(const PairPlace& place, Scales& to,
                              const AddOffsets& add_offsets) const {
    if constexpr (HasSuperblocks<Decoder>) {
      read_two_levels<kTiles>(place, to);
    } else if (scale_kind_ == 2) {
      read_scales_of<F16, 2, kTiles>(place, to);
    } else {
      if (Decoder::kHasZeros && scale_kind_ >= kOffsets) add_offsets();
      read_other_scales<kTiles>(place, to, scale_kind_ % kOffsets);
    }
  }

  /// The zero points of as many tiles.
  template <int kTiles>
  __device__ void read_zeros(const PairPlace& place, Scales& to) const {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      uint32_t zeros[kGroups][2];
      read_zero_points(place, tile, zeros);
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        to.zeros[tile][g] = {to_add(zeros[g][0], 1), to_add(zeros[g][1], Decoder::kRawOdd)};
      }
    }
  }

  /// The zero points of tile `tile`, of a lane's two rows, k2To23 more as floats.
  __device__ void read_zero_points(const PairPlace& place, int tile,
                                   uint32_t (&to)[kGroups][2]) const {
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
      // One or two bytes below 0x4b00 or 0x4b.
      const uint32_t select = kZeroBytes == 1 ? 0x7650 + i % 4 : i % 2 == 0 ? 0x7610 : 0x7632;
      to[i / 2][i % 2] = __byte_perm(words[i * kZeroBytes / 4], k2To23, select);
    }
  }

  // --- one group of a tile at a time, in two steps: loads, and what is made of them later

  /// The scales of a lane's two rows as they are stored; those of a byte as floats.
  __device__ void load_scale(const PairPlace& place, int tile, int group, uint32_t (&to)[2]) const {
    const int kind = scale_kind_ % kOffsets;
    const uint32_t at = place.scales + (tile * place.next_block * kBlock + 2 * group) * bytes_;
    if (kind == 2 || kind == 3) {
      ld_shared<1>(to, at);
    } else if (kind == 1) {
      const uint32_t both = ld_shared_u16(at);
      ld_shared<1>(to, scale_values_ + (both & 0xff) * 4);
      ld_shared<1>(to + 1, scale_values_ + (both >> 8) * 4);
    } else {
      ld_shared<2>(to, at);
    }
  }
  __device__ float2 to_scales(const uint32_t (&stored)[2]) const {
    const int kind = scale_kind_ % kOffsets;
    const auto low = static_cast<uint16_t>(stored[0]);
    const auto high = static_cast<uint16_t>(stored[0] >> 16);
    if (kind == 2) return {F16::to_float(low), F16::to_float(high)};
    if (kind == 3) return {BF16::to_float(low), BF16::to_float(high)};
    return {__uint_as_float(stored[0]), __uint_as_float(stored[1])};
  }

  __device__ uint32_t load_zeros(const PairPlace& place, int tile, int group) const {
    const uint32_t at = place.zeros + (tile * place.next_block * kBlock + 2 * group) * kZeroBytes;
    if constexpr (kZeroBytes == 1) return ld_shared_u16(at);
    uint32_t both;
    ld_shared<1>(&both, at);
    return both;
  }
  static __device__ int2 to_zeros(uint32_t stored) {
    if constexpr (kZeroBytes == 1) {
      return {static_cast<int>(stored & 0xff), static_cast<int>(stored >> 8)};
    }
    return {static_cast<int>(stored & 0xffff), static_cast<int>(stored >> 16)};
  }
  __device__ bool has_offsets() const {
    return scale_kind_ >= kOffsets;
  }
  __device__ uint32_t load_offsets(const PairPlace& place, int tile, int group) const {
    uint32_t both;
    ld_shared<1>(&both, place.offsets + (tile * place.next_block * kBlock + 2 * group) * 2);
    return both;
  }
  __device__ float2 to_offsets(uint32_t stored) const {
    const auto low = static_cast<uint16_t>(stored);
    const auto high = static_cast<uint16_t>(stored >> 16);
    if (w_.zero_kind == ZeroKind::kF16) return {F16::to_float(low), F16::to_float(high)};
    return {BF16::to_float(low), BF16::to_float(high)};
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
  __device__ void read_two_levels(const PairPlace& place, Scales& to) const {
    using Of = SuperblockOf<Decoder, kGroups>;
    TwoLevels<Decoder, kGroups> numbers;
    if constexpr (Of::kHasOffsets) {
      numbers.load_factors(place.zeros, Decoder::kRawFactor,
                           Decoder::kRawFactor * Decoder::kRawOdd);
    } else {
      numbers.load_factors(place.zeros);
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      numbers.load_tile(place.scales + tile * Of::kForm.tile_integers());
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        to.scales[tile][g] = numbers.scale(g);
        if constexpr (Of::kHasOffsets) to.zeros[tile][g] = numbers.offset(g);
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

  /// -kRawFactor (kRawOffset + factor * zero), of a zero in the mantissa of 2^23: one FMA, exact.
  static __device__ float to_add(uint32_t mantissa, int factor) {
    constexpr float kFactor = Decoder::kRawFactor;
    const float f = static_cast<float>(factor);
    return fmaf(__uint_as_float(mantissa), -kFactor * f,
                kFactor * (f * 0x1p23f - Decoder::kRawOffset));
  }

  const WeightArguments& w_;
  const uint32_t scale_values_;
  const int bytes_;       // of a scale
  const int scale_kind_;  // bytes, or 3: bf16; and kOffsets
  const int lane_;
};

/// Adds the products of a group of raw codes to `sum`, scaled, and what its zero point or offset
/// contributes: `scale` and `zero` are those of PairReader's Scales. kAddsOffsets: false where
/// offsets are added otherwise.
template <class Decoder, int kGroups, bool kAddsOffsets = true>
__device__ __forceinline__ void add_group(float& sum, float products, bool is_odd, float scale,
                                          float zero, float x_sum) {
  if constexpr (HasSuperblocks<Decoder>) {
    using Of = SuperblockOf<Decoder, kGroups>;
    if (Of::raw_zero(is_odd) != 0) products = fmaf(Of::raw_zero(is_odd), x_sum, products);
    sum = fmaf(scale, products, sum);
    if constexpr (Of::kHasOffsets && kAddsOffsets) sum = fmaf(zero, x_sum, sum);
  } else {
    if constexpr (Decoder::kHasZeros) products = fmaf(zero, x_sum, products);
    sum = fmaf(scale, products, sum);
  }
}

}  // namespace subbyte::cuda
