#pragma once
// One warp's way through its weights in `narrow`: pairs of neighbouring tiles of a strip, whose
// codes, scales and zero points are copied to a ring in shared memory some pairs ahead of their
// use.
//
//   slot of the ring   codes of tile 0 | of tile 1 | scales of 0 | of 1 | zero points of 0 | of 1
//   with offsets       codes of tile 0 | of tile 1 | scales of 0 | of 1 | offsets of 0 | of 1 |
//                      constant zero points of 0 | of 1
//
// of which the scales, zero points and offsets of tile 1 are left out where those of tile 0 are the
// same. Zero points that are the same everywhere are written once: so all have the same way.
// Copies are waited for by number, not by register: loads to registers would share the few
// scoreboards of a warp, so that waiting for the oldest is waiting for all. Where a strip has an
// odd number of tiles its last pair is filled up with zeros.

#include <cstdint>

#include "kernels/cuda/device/shared_sizes.h"
#include "kernels/cuda/device/tables.cuh"

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

/// kGroups: groups of a tile (1, 2 or 4); with 1 a group may also be several tiles.
template <class Decoder, int kGroups>
class PairStream {
 public:
  static constexpr int kWords = Decoder::kBits;
  static constexpr int kFirst = first_piece(kWords);
  static constexpr int kSecond = second_piece(kWords);
  static constexpr int kTileBytes = tile_bytes(kWords);
  static constexpr int kZeroBytes = zero_bytes_of<Decoder>();

  /// Of the two rows of a lane in each group of two tiles.
  struct Scales {
    float2 scales[2][kGroups];
    float2 zeros[2][kGroups];  // what is to be added for each input, in raw units; 0 without zeros
  };

  /// `ring` of this warp and `scale_values` of fill_scale_values() are shared addresses.
  __device__ PairStream(const WeightArguments& weights, const NarrowPartition& p, uint32_t ring,
                        uint32_t scale_values, int lane)
      : w_(weights),
        p_(p),
        scale_values_(scale_values),
        ring_(ring + lane * kFirst * 4),
        at_(ring_),
        to_scales_(in_register(2 * kTileBytes - lane * kFirst * 4 +
                               lane / 4 * 2 * kGroups * weights.scale.bytes)),
        to_zeros_(in_register(2 * kTileBytes + p.pair_scales +
                              (has_constant_zeros() ? p.pair_zeros : 0) - lane * kFirst * 4 +
                              lane / 4 * 2 * kGroups * kZeroBytes)),
        scale_kind_(in_register((weights.scale.shift == 16 ? 3 : weights.scale.bytes) +
                                (weights.zero_kind == ZeroKind::kInteger ? 0 : kOffsets))),
        steps_(in_register(p.pairs_per_block == 1)),
        last_slot_(in_register(ring_ + p.ring_bytes - p.slot_bytes)),
        lane_(lane) {
#pragma unroll
    for (int i = 0; i < kRounds; ++i) set_role(roles_[i], (i * kLanes + lane) * 16);
  }

  /// Where zero points are the same everywhere they are not copied: fills the slots with them.
  __device__ void fill_zeros() const {
    if (!Decoder::kHasZeros || !has_constant_zeros()) return;
    const uint32_t zeros = w_.zero * (kZeroBytes == 1 ? 0x01010101u : 0x00010001u);
    const int begin = 2 * kTileBytes + p_.pair_scales + p_.pair_zeros;
    for (int i = 0; i < p_.depth; ++i) {
      const uint32_t slot = ring_ - lane_ * kFirst * 4 + i * p_.slot_bytes;
      for (int j = begin + lane_ * 4; j < p_.slot_bytes; j += kLanes * 4) {
        write_shared(slot + j, zeros);
      }
    }
  }

  /// The next pair to be copied is that of tiles `tile`, which is even, and tile + 1 of `strip`.
  __device__ void begin(int strip, int tile) {
    const uint32_t number = static_cast<uint32_t>(strip) * w_.tiles + tile;
    tiles_left_ = w_.tiles - tile;
    codes_from_ = w_.codes + uint64_t{number} * kTileBytes + lane_ * kFirst * 4;
    first_block_ = static_cast<uint32_t>(strip) * w_.blocks;
#pragma unroll
    for (int i = 0; i < kRounds; ++i) place(roles_[i], tile);
  }

  /// Starts the copies of the next pair into the slot that is read now, and goes on to the pair
  /// after.
  __device__ void load() {
    const bool second = tiles_left_ > 1;
    copy_async<kFirst * 4>(at_, codes_from_);
    copy_async_or_zero<kFirst * 4>(at_ + kTileBytes, codes_from_ + kTileBytes, second);
    if constexpr (kSecond > 0) {
      const int to_second = kLanes * kFirst * 4 + lane_ * (kSecond - kFirst) * 4;
      copy_async<kSecond * 4>(at_ + to_second, codes_from_ + to_second);
      copy_async_or_zero<kSecond * 4>(at_ + to_second + kTileBytes,
                                      codes_from_ + to_second + kTileBytes, second);
    }
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      const Role& role = roles_[i];
      const uint32_t to = at_ + 2 * kTileBytes + lane_ * (16 - kFirst * 4) + i * kLanes * 16;
      copy_16_if(role.tile < 2, to, role.from, role.tile < tiles_left_);
    }
    tiles_left_ -= 2;
    codes_from_ += 2 * kTileBytes;
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      if (steps_ != 0) {
        roles_[i].from += roles_[i].step;
      } else {
        place(roles_[i], w_.tiles - tiles_left_);
      }
    }
  }

  /// The next slot is read.
  __device__ void next_slot() {
    at_ = at_ == last_slot_ ? ring_ : at_ + p_.slot_bytes;
  }

  /// The words of tile `tile` (0 or 1) of the pair.
  __device__ void read_codes(int tile, uint32_t (&words)[kWords]) const {
    const uint32_t at = at_ + tile * kTileBytes;
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
  __device__ void read_scales(Scales& to, const AddOffsets& add_offsets) const {
    if (scale_kind_ == 2) {
      read_scales_of<F16, 2, kTiles>(to);
    } else {
      if (Decoder::kHasZeros && scale_kind_ >= kOffsets) add_offsets();
      read_other_scales<kTiles>(to, scale_kind_ % kOffsets);
    }
    if constexpr (Decoder::kHasZeros) read_zeros<kTiles>(to);
  }

  /// Those of tile `tile`, of the two rows of a lane.
  __device__ void read_offsets(int tile, float2 (&to)[kGroups]) const {
    uint32_t rows[kGroups][2];
    read_rows<2>(at_ + 2 * kTileBytes + p_.pair_scales - lane_ * kFirst * 4 +
                     (lane_ / 4 * 2 * kGroups + tile * kBlock) * 2,
                 rows);
    const bool is_f16 = w_.zero_kind == ZeroKind::kF16;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      to[g] = is_f16 ? float2{scale_of<F16, 2>(rows[g][0]), scale_of<F16, 2>(rows[g][1])}
                     : float2{scale_of<BF16, 2>(rows[g][0]), scale_of<BF16, 2>(rows[g][1])};
    }
  }

 private:
  static constexpr int kBlock = kGroups * kStripRows;  // scales of a tile's block
  static constexpr int kOffsets = 8;                   // in scale_kind_

  /// Zero points are the same everywhere: none are in memory, or offsets instead.
  __device__ bool has_constant_zeros() const {
    return w_.zeros == nullptr || w_.zero_kind != ZeroKind::kInteger;
  }

  /// Copies of 16 bytes that a lane has to do for the scales and zero points of a pair.
  static constexpr int kMostBytes = 4 + (Decoder::kHasZeros ? 2 : 0);  // of a scale and an offset
  static constexpr int kRounds = (2 * kBlock * kMostBytes + kLanes * 16 - 1) / (kLanes * 16);

  /// One of them.
  struct Role {
    int tile;  // whose scales or zero points it copies; more than 1: nothing
    int step;  // bytes from pair to pair
    const uint8_t* from;
    const uint8_t* begin;  // of its bytes in block 0
  };
  __device__ void set_role(Role& role, int at) const {
    const bool is_zeros = at >= p_.pair_scales;
    const int block = kBlock * (is_zeros ? w_.zero_bytes : w_.scale.bytes);
    const int in_pair = is_zeros ? at - p_.pair_scales : at;
    const bool works = in_pair < (is_zeros ? p_.pair_zeros : p_.pair_scales);
    const int tile = in_pair >= block ? 1 : 0;
    role.tile = works ? tile : 2;
    role.step = block * (p_.one_group ? 1 : 2);
    role.begin = (is_zeros ? w_.zeros : w_.scales) + in_pair - tile * block;
  }
  __device__ void place(Role& role, int tile) const {
    const int block_bytes = p_.one_group ? role.step : role.step / 2;
    const uint64_t block = first_block_ + block_of(tile + role.tile);
    role.from = role.begin + block * block_bytes;
  }
  __device__ uint32_t block_of(int tile) const {
    if (kGroups > 1 || w_.blocks_per_tile == 0) return tile;
    return __umulhi(tile, w_.blocks_per_tile);
  }

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
  __device__ void read_other_scales(Scales& to, int kind) const {
    if (kind == 1) {
      read_scales_of<F16, 1, kTiles>(to);
    } else if (kind == 3) {
      read_scales_of<BF16, 2, kTiles>(to);
    } else if (Decoder::kHasZeros && kind == 2) {
      read_scales_of<F16, 2, kTiles>(to);
    } else {
      read_scales_of<F16, 4, kTiles>(to);
    }
  }

  template <class Number, int kSize, int kTiles>
  __device__ void read_scales_of(Scales& to) const {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      uint32_t rows[kGroups][2];
      read_rows<kSize>(at_ + to_scales_ + tile * kBlock * kSize, rows);
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
  __device__ void read_zeros(Scales& to) const {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      constexpr int kBytes = 2 * kGroups * kZeroBytes;  // of a lane
      const uint32_t at = at_ + to_zeros_ + tile * kBlock * kZeroBytes;
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
  const NarrowPartition& p_;
  const uint32_t scale_values_;
  const uint32_t ring_;  // this lane's codes in slot 0
  uint32_t at_;          // in the slot that is read
  const int to_scales_;  // from there
  const int to_zeros_;
  const int scale_kind_;  // bytes, or 3: bf16; and kOffsets
  const int steps_;       // each pair has scales of its own: they follow each other
  const uint32_t last_slot_;
  const int lane_;

  // What is copied next.
  int tiles_left_ = 0;  // of the strip
  const uint8_t* codes_from_ = nullptr;
  uint32_t first_block_ = 0;
  Role roles_[kRounds];
};

}  // namespace subbyte::cuda
