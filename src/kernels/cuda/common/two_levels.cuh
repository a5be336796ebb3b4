#pragma once
// Scales and offsets of two levels as kernels read them (gpu/superblock.h has the layout). A scale
// is the product of its integer and its factor in float32, which is exact: 8 bits by 11. So are
// offsets, also times a power of two.

#include <cstdint>

#include "kernels/cuda/common/ptx.cuh"
#include "kernels/gpu/superblock.h"

namespace subbyte::cuda {

using namespace gpu;

/// A decoder of weights whose scales have two levels.
template <class Decoder>
struct InSuperblocks : Decoder {
  static constexpr bool kInSuperblocks = true;
};

template <class Decoder>
concept HasSuperblocks = requires {
  Decoder::kInSuperblocks;
};

/// The scale, and the offset or -0, of a group of a tile of the superblock at that address of
/// device memory.
__device__ __forceinline__ float2 two_levels_at(const uint8_t* superblock, const Superblock& form,
                                                int row, int tile, int group) {
  const auto number = [&](bool is_offset) {
    const uint8_t* const factor = superblock + factor_at(form, row, is_offset);
    const uint8_t stored = superblock[integer_at(form, row, tile, group, is_offset)];
    const int integer =
        form.in_halves ? canonical_integer(form, stored, is_offset, 0) : stored - 128;
    return F16::to_float(*reinterpret_cast<const uint16_t*>(factor)) * static_cast<float>(integer);
  };
  return {number(false), form.has_offsets ? number(true) : -0.0f};
}

/// What is known of such weights when kernels are compiled.
template <class Decoder, int kGroups>
struct SuperblockOf {
  static constexpr Superblock kForm = superblock_of(Decoder::kHasZeros, Decoder::kBits, kGroups);
  static constexpr bool kHasOffsets = kForm.has_offsets;
  /// Zero point of all codes: those of signed integers have one.
  static constexpr int kZero = !Decoder::kHasZeros || kHasOffsets ? 0 : 1 << (Decoder::kBits - 1);

  /// What that adds to products of raw codes for each input, of rows g or g + 8.
  static __device__ constexpr float raw_zero(bool is_odd) {
    if constexpr (Decoder::kHasZeros) {
      return -Decoder::kRawFactor *
             (Decoder::kRawOffset + static_cast<float>((is_odd ? Decoder::kRawOdd : 1) * kZero));
    } else {
      return 0;
    }
  }
};

/// The numbers of a lane's two rows.
template <class Decoder, int kGroups>
class TwoLevels {
 public:
  using Of = SuperblockOf<Decoder, kGroups>;

  /// From the shared address of the lane's factors; those of offsets times `even` and `odd`.
  __device__ void load_factors(uint32_t at, float even = 1, float odd = 1) {
    uint32_t words[kFactorWords];
    ld_shared<kFactorWords>(words, at);
    scale_factors_ = both(words[0]);
    if constexpr (Of::kHasOffsets) {
      offset_factors_ = both(words[kFactorWords - 1]);
      offset_factors_.x *= even;
      offset_factors_.y *= odd;
    }
  }
  /// From the shared address of the lane's integers of a tile.
  __device__ void load_tile(uint32_t at) { ld_shared<kWords>(words_, at); }

  /// Of group `group` of the tile.
  __device__ float2 scale(int group) const {
    return {scale_factors_.x * integer(2 * group, 0), scale_factors_.y * integer(2 * group + 1, 0)};
  }
  __device__ float2 offset(int group) const {
    constexpr int kFirst = Of::kForm.in_halves ? 0 : 2 * kGroups;
    return {offset_factors_.x * integer(kFirst + 2 * group, 4),
            offset_factors_.y * integer(kFirst + 2 * group + 1, 4)};
  }

 private:
  static constexpr int kFactorWords = Of::kForm.lane_factors() / 4;
  static constexpr int kWords = Of::kForm.lane_integers() / 4;

  static __device__ float2 both(uint32_t halves) {
    return {F16::to_float(static_cast<uint16_t>(halves)),
            F16::to_float(static_cast<uint16_t>(halves >> 16))};
  }

  /// The integer of a byte, or of the half of it that begins at bit `half`: below 2^23 in the
  /// mantissa of 2^23, from which the subtraction is exact.
  __device__ float integer(int byte, int half) const {
    constexpr uint32_t k2To23 = 0x4b000000;
    constexpr float kBias = Of::kForm.in_halves ? 0x1p23f : 0x1p23f + 128;
    uint32_t word = words_[byte / 4];
    if constexpr (Of::kForm.in_halves) word = word >> half & 0x0f0f0f0f;
    return __uint_as_float(__byte_perm(word, k2To23, 0x7650 + byte % 4)) - kBias;
  }

  float2 scale_factors_;
  float2 offset_factors_;  // unset without offsets
  uint32_t words_[kWords];
};

}  // namespace subbyte::cuda
