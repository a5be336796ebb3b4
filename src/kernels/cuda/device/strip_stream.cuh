#pragma once
// One warp's way through its weights in `gemv`: the same four tiles (256 inputs, a segment) of one
// strip after the other. So from one to the next all addresses grow by the same numbers.
//
//   slot of the ring   codes of four tiles | blocks of scales | of zero points or offsets |
//                      constant zero points of as many blocks
//
// Tiles may share blocks; what a segment has at most is there in every slot. Zero points that are
// the same everywhere are written once. Beyond the last tile of a strip codes are zero, and scales
// those of the last tile.

#include <cstdint>

#include "kernels/cuda/device/pair_reader.cuh"
#include "kernels/cuda/device/shared_sizes.h"

namespace subbyte::cuda {

template <class Decoder, int kGroups>
class StripStream {
 public:
  using Reader = PairReader<Decoder, kGroups>;
  static constexpr int kTileBytes = Reader::kTileBytes;
  static constexpr int kCodeBytes = kSegmentTiles * kTileBytes;

  /// `ring` of this warp is a shared address.
  __device__ StripStream(const WeightArguments& weights, const GemvPartition& p, uint32_t ring,
                         int lane)
      : w_(weights), p_(p), ring_(ring), at_(ring), to_(ring), lane_(lane) {}

  /// Where zero points are the same everywhere they are not copied: fills the slots with them.
  __device__ void fill_zeros(const Reader& reader) const {
    if (!Decoder::kHasZeros || !Reader::has_constant_zeros(w_)) return;
    for (int i = 0; i < kGemvSlots; ++i) {
      const uint32_t slot = ring_ + i * p_.slot_bytes;
      reader.fill_zeros(slot + kCodeBytes + p_.scales + p_.zeros, slot + p_.slot_bytes);
    }
  }

  /// Next to be copied is `segment` of `strip`, then of the strips that follow.
  __device__ void begin_copies(int strip, int segment) {
    const int tile = segment * kSegmentTiles;
    const int tiles = min(kSegmentTiles, w_.tiles - tile);
    const int first = block_of(tile);
    const int blocks = block_of(tile + tiles - 1) - first + 1;
    const uint64_t tile_number = static_cast<uint64_t>(strip) * w_.tiles + tile;
    const uint64_t block_number = static_cast<uint64_t>(strip) * w_.blocks + first;
    codes_from_ = w_.codes + tile_number * kTileBytes + lane_ * 16;
    code_bytes_ = tiles * kTileBytes - lane_ * 16;
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      const int at = (i * kLanes + lane_) * 16;
      const bool is_zeros = at >= p_.scales;
      const int block_bytes = kBlock * (is_zeros ? w_.zero_bytes : w_.scale.bytes);
      const int in_area = is_zeros ? at - p_.scales : at;
      const bool works = in_area < blocks * block_bytes && (!is_zeros || p_.zeros > 0);
      roles_[i].step = works ? w_.blocks * block_bytes : -1;
      roles_[i].from = (is_zeros ? w_.zeros : w_.scales) + block_number * block_bytes + in_area;
    }
  }

  /// Starts the copies of a segment into the next slot.
  __device__ void load() {
    const uint32_t to = to_ + lane_ * 16;
#pragma unroll
    for (int i = 0; i < Reader::kWords; ++i) {
      copy_async_or_zero<16>(to + i * 512, codes_from_ + i * 512, i * 512 < code_bytes_);
    }
    codes_from_ += static_cast<int64_t>(w_.tiles) * kTileBytes;
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      copy_16_if(roles_[i].step >= 0, to + kCodeBytes + i * 512, roles_[i].from, true);
      roles_[i].from += roles_[i].step;
    }
    to_ = next(to_);
  }

  /// What is read from now on is of this segment.
  __device__ void begin_reads(int segment) {
    const int tile = segment * kSegmentTiles;
    const int first = block_of(tile);
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const int block = block_of(min(tile + 2 * pair, w_.tiles - 1)) - first;
      blocks_[pair] = block;
      next_blocks_[pair] = block_of(min(tile + 2 * pair + 1, w_.tiles - 1)) - first - block;
    }
    to_scales_ = kCodeBytes + lane_ / 4 * 2 * kGroups * w_.scale.bytes;
    to_zeros_ = kCodeBytes + p_.scales + (Reader::has_constant_zeros(w_) ? p_.zeros : 0) +
                lane_ / 4 * 2 * kGroups * Reader::kZeroBytes;
  }

  /// Where pair 0 or 1 of the segment lies that is read.
  __device__ PairPlace place(int pair) const {
    const int before = blocks_[pair] * kBlock;
    return {at_ + pair * 2 * kTileBytes + lane_ * Reader::kFirst * 4,
            at_ + to_scales_ + before * w_.scale.bytes,
            at_ + to_zeros_ + before * Reader::kZeroBytes,
            at_ + kCodeBytes + p_.scales + lane_ / 4 * 4 * kGroups + before * 2,
            next_blocks_[pair]};
  }

  /// The next slot is read.
  __device__ void next_slot() { at_ = next(at_); }

 private:
  static constexpr int kBlock = Reader::kBlock;
  /// Copies of 16 bytes that a lane has to do for scales, and zero points or offsets.
  static constexpr int kMostBytes = 4 + (Decoder::kHasZeros ? 2 : 0);
  static constexpr int kRounds =
      (kSegmentTiles * kBlock * kMostBytes + kLanes * 16 - 1) / (kLanes * 16);

  struct Role {
    const uint8_t* from;
    int64_t step;  // bytes from strip to strip; negative: nothing to do
  };

  __device__ int block_of(int tile) const {
    if (kGroups > 1 || w_.blocks_per_tile == 0) return tile;
    return __umulhi(tile, w_.blocks_per_tile);
  }
  __device__ uint32_t next(uint32_t slot) const {
    const uint32_t after = slot + p_.slot_bytes;
    return after == ring_ + kGemvSlots * p_.slot_bytes ? ring_ : after;
  }

  const WeightArguments& w_;
  const GemvPartition& p_;
  const uint32_t ring_;
  uint32_t at_;  // slot that is read
  uint32_t to_;  // slot that is filled next
  const int lane_;

  // What is copied next.
  const uint8_t* codes_from_ = nullptr;
  int code_bytes_ = 0;  // there, from this lane's first on
  Role roles_[kRounds];

  // Of the segment that is read.
  int blocks_[2];       // of scales, before that of each pair
  int next_blocks_[2];  // PairPlace::next_block
  int to_scales_ = 0;   // of this lane, in a slot
  int to_zeros_ = 0;
};

}  // namespace subbyte::cuda
