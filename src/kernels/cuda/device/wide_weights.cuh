#pragma once
// The weights of one warp of wide.cuh, on their way from device memory to the registers of the
// tensor cores: kStrips strips, 64 rows apart.
//
// Copies to shared memory are begun and waited for as in weight_stream.cuh: codes kDepth tiles
// ahead, scales and zero points a segment (kDepth tiles) ahead, in groups of copies
//
//   scales of segment 0 | tile 0 | tile 1 | ... | scales of segment 1 | tile 0 | ...
//
// Four lanes, 4 g to 4 g + 3, decode weights of rows g and g + 8 and need the same scales. Every
// four tiles each of them makes what one tile needs ready in its registers (both scales as 16-bit
// numbers, and what the decoder wants to know of both zero points), and gives it to the others when
// that tile's turn comes:
//
//   tile          s      s + 1  s + 2  s + 3
//   lane 4 g + 0  ready  <----  <----  <----     (a shuffle for each group and strip)
//   lane 4 g + 1  ---->  ready  <----  <----

#include <cstdint>

#include "kernels/cuda/device/arguments.h"
#include "kernels/cuda/device/decoders.h"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/device/weight_stream.cuh"

namespace subbyte::cuda {

/// The low or the high half of `pair` in both halves. Instructions for pairs have that for free.
__device__ __forceinline__ uint32_t low_twice(uint32_t pair) {
  uint32_t d;
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {l, l};}" : "=r"(d) : "r"(pair));
  return d;
}
__device__ __forceinline__ uint32_t high_twice(uint32_t pair) {
  uint32_t d;
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {h, h};}" : "=r"(d) : "r"(pair));
  return d;
}

template <class Number, class Decoder, int kGroups, int kStrips, int kTilesAhead>
class WideWeights {
 public:
  static constexpr int kDepth = kTilesAhead;
  static constexpr int kWords = Decoder::kBits;
  static constexpr int kTileBytes = tile_bytes(kWords);
  static constexpr int kFirst = first_piece(kWords);
  static constexpr int kSecond = second_piece(kWords);
  static constexpr int kBlock = kGroups * kStripRows;  // scales of a block
  static constexpr int kValues = kDepth * kBlock;      // of a segment, at most
  static constexpr int kStepsPerGroup = kSteps / kGroups;
  /// Tiles whose scales are ready at a time.
  static constexpr int kReady = 4;

  /// Groups of copies that may be under way when the scales of a segment are needed, those of the
  /// next having been begun; and when a tile is needed.
  static constexpr int kPendingAtScales = kDepth + 1;
  static constexpr int kPendingAtTile = kDepth;

  /// Of a group of the tile whose turn it is, of both rows.
  struct Group {
    uint32_t scales;
    uint32_t zeros;
  };

  /// `scale_values` of fill_scale_values(); `shared` has kStrips * wide_stream_bytes().
  __device__ WideWeights(const WeightArguments& weights, const Table& table,
                         const float* scale_values, uint8_t* shared)
      : w_(weights),
        table_(table),
        scale_values_(scale_values),
        zero_size_(Decoder::kHasZeros && weights.zeros != nullptr ? weights.zero_bytes : 0),
        lane_(threadIdx.x % kLanes),
        ring_(shared_address(shared) + lane_ * kFirst * 4),
        raw_(shared + kStrips * kDepth * kTileBytes) {}

  /// Begins the copies of the first segment of strips first_strip, first_strip + 4, ... Strips
  /// beyond the matrix repeat its last one; nobody stores them.
  __device__ void begin(int first_strip, int tile, int end) {
#pragma unroll
    for (int j = 0; j < kStrips; ++j) {
      const uint32_t strip = min(first_strip + 4 * j, w_.strips - 1);
      next_[j] = w_.codes + uint64_t{strip * w_.tiles + tile} * kTileBytes + lane_ * kFirst * 4;
      first_block_[j] = strip * w_.blocks;
    }
    load_scales(tile, end, 0);
#pragma unroll
    for (int i = 0; i < kDepth; ++i) load_codes(i, tile + i < end);
  }

  /// Begins the copies of the scales of the segment at `tile`, if that is before `end`, into buffer
  /// `buffer` (0 or 1).
  __device__ void load_scales(int tile, int end, int buffer) {
    if (tile < end) {
      const int begin = block_of(tile);
      const uint32_t size = (block_of(min(tile + kDepth, end) - 1) + 1 - begin) * kBlock;
#pragma unroll
      for (int j = 0; j < kStrips; ++j) {
        const uint64_t first = uint64_t{first_block_[j] + begin} * kBlock;
        copy<4>(raw_scales(j, buffer), w_.scales + first * w_.scale.bytes, size * w_.scale.bytes);
        if (zero_size_ != 0) {
          copy<2>(raw_zeros(j, buffer), w_.zeros + first * zero_size_, size * zero_size_);
        }
      }
    }
    commit_copies();
  }

  /// Begins the copies of the next tile of each strip to slot `slot`, if `there`.
  __device__ void load_codes(int slot, bool there) {
#pragma unroll
    for (int j = 0; j < kStrips; ++j) {
      if (there) {
        const uint32_t to = ring_ + (j * kDepth + slot) * kTileBytes;
        copy_async<kFirst * 4>(to, next_[j]);
        if constexpr (kSecond > 0) {
          copy_async<kSecond * 4>(to + second_piece_at(), next_[j] + second_piece_at());
        }
      }
      next_[j] += kTileBytes;
    }
    commit_copies();
  }

  /// Makes the scales of tiles slot to slot + 3 of the segment at `tile` ready. All lanes must have
  /// waited for their copies, and for each other.
  __device__ void prepare(int tile, int slot, int buffer) {
    const int mine = slot + lane_ % kReady;
    const int block = kGroups > 1 ? mine : block_of(tile + mine) - block_of(tile);
    const int at = (block * (kBlock / 2) + lane_ / 4 * kGroups) * 2;
    if (w_.scale.bytes == 1) {
      prepare_scales<1>(at, buffer);
    } else if (w_.scale.bytes == 2) {
      prepare_scales<2>(at, buffer);
    } else {
      prepare_scales<4>(at, buffer);
    }
    if constexpr (Decoder::kHasZeros) prepare_zeros(at, buffer);
  }

  /// The words of the tile in slot `slot`, which must have been waited for.
  __device__ void read_codes(int slot, uint32_t (&words)[kStrips][kWords]) const {
#pragma unroll
    for (int j = 0; j < kStrips; ++j) {
      const uint32_t at = ring_ + (j * kDepth + slot) * kTileBytes;
      read_shared<kFirst>(words[j], at);
      if constexpr (kSecond > 0) read_shared<kSecond>(words[j] + kFirst, at + second_piece_at());
    }
  }

  /// Of group `group` of strip j's tile in slot `slot`.
  __device__ Group group(int j, int slot, int group) const {
    const int from = (lane_ & ~(kReady - 1)) | (slot & (kReady - 1));
    Group now = {__shfl_sync(~0u, scales_[j][group], from), 0};
    if constexpr (Decoder::kHasZeros) now.zeros = __shfl_sync(~0u, zeros_[j][group], from);
    return now;
  }

  /// Step `step` of a tile: weights times scales.
  __device__ void decode(const uint32_t (&words)[kWords], int step, const Group& group,
                         uint32_t (&registers)[4]) const {
    if constexpr (Decoder::kHasZeros) {
      const ZeroPair zeros = {low_twice(group.zeros), high_twice(group.zeros)};
      Decoder::decode(words, step, zeros, registers);
    } else if constexpr (Decoder::kHasTable) {
      Decoder::decode(words, step, table_, registers);
    } else {
      Decoder::decode(words, step, registers);
    }
    const uint32_t scales[2] = {low_twice(group.scales), high_twice(group.scales)};
#pragma unroll
    for (int r = 0; r < 4; ++r) registers[r] = Number::mul(registers[r], scales[r % 2]);
  }

 private:
  __device__ int block_of(int tile) const {
    if (kGroups > 1 || w_.blocks_per_tile == 0) return tile;
    return static_cast<int>(__umulhi(tile, w_.blocks_per_tile));
  }
  /// From this lane's words of the first piece.
  __device__ int second_piece_at() const {
    return kLanes * kFirst * 4 + lane_ * (kSecond - kFirst) * 4;
  }
  /// [strip][2][values] scales, [strip][2][values] zero points: wide_stream_bytes() has the sizes.
  __device__ uint8_t* raw_scales(int j, int buffer) const {
    return raw_ + (2 * j + buffer) * kValues * w_.scale.bytes;
  }
  __device__ uint8_t* raw_zeros(int j, int buffer) const {
    return raw_scales(kStrips, 0) + (2 * j + buffer) * kValues * zero_size_;
  }

  /// kMostBytes: of a value, at most.
  template <int kMostBytes>
  __device__ void copy(uint8_t* to, const uint8_t* from, int bytes) const {
#pragma unroll
    for (int i = 0; i < (kValues * kMostBytes + kLanes * 16 - 1) / (kLanes * 16); ++i) {
      const int at = (i * kLanes + lane_) * 16;
      if (at < bytes) copy_async<16>(shared_address(to + at), from + at);
    }
  }

  template <int kBytes>
  __device__ float scale_of(uint32_t code) const {
    if constexpr (kBytes == 1) return scale_values_[code];
    if constexpr (kBytes == 2) {
      const uint16_t bits = static_cast<uint16_t>(code);
      return w_.scale.shift == 16 ? BF16::to_float(bits) : F16::to_float(bits);
    }
    return __uint_as_float(code);
  }

  template <int kBytes>
  __device__ void prepare_scales(int at, int buffer) {
#pragma unroll
    for (int j = 0; j < kStrips; ++j) {
      const uint8_t* const from = raw_scales(j, buffer) + at * kBytes;
#pragma unroll
      for (int i = 0; i < kGroups; ++i) {
        const CodePair code = load_pair<kBytes>(from + 2 * i * kBytes);
        scales_[j][i] = Number::pair_of_floats(scale_of<kBytes>(code.even) * w_.scale_factor,
                                               scale_of<kBytes>(code.odd) * w_.scale_factor);
      }
    }
  }

  __device__ void prepare_zeros(int at, int buffer) {
#pragma unroll
    for (int j = 0; j < kStrips; ++j) {
      const uint8_t* const from = raw_zeros(j, buffer) + at * zero_size_;
#pragma unroll
      for (int i = 0; i < kGroups; ++i) {
        CodePair zero = {static_cast<uint32_t>(w_.zero), static_cast<uint32_t>(w_.zero)};
        if (zero_size_ == 1) zero = load_pair<1>(from + 2 * i);
        if (zero_size_ == 2) zero = load_pair<2>(from + 4 * i);
        const ZeroPair constants = Decoder::zeros(zero.even, zero.odd);
        zeros_[j][i] = __byte_perm(constants.even, constants.odd, 0x5410);
      }
    }
  }

  const WeightArguments& w_;
  const Table& table_;
  const float* const scale_values_;
  const int zero_size_;
  const int lane_;
  const uint32_t ring_;  // of the codes: address of this lane's words of tile 0
  uint8_t* const raw_;   // scales and zero points as they are in memory
  const uint8_t* next_[kStrips];
  uint32_t first_block_[kStrips];
  uint32_t scales_[kStrips][kGroups];
  uint32_t zeros_[kStrips][Decoder::kHasZeros ? kGroups : 1];
};

}  // namespace subbyte::cuda
