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

#include "kernels/cuda/common/pair_mma.cuh"
#include "kernels/cuda/gemv/partition.h"

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
      : w_(weights),
        p_(p),
        ring_(ring),
        last_slot_(ring + p.ring_bytes - p.slot_bytes),
        at_(ring),
        to_(ring),
        lane_(lane) {}

  /// Where zero points are the same everywhere they are not copied: fills the slots with them.
  __device__ void fill_zeros(const Reader& reader) const {
    if constexpr (Decoder::kHasZeros) {
      if (!Reader::has_constant_zeros(w_)) return;
      for (int i = 0; i < kGemvSlots; ++i) {
        const uint32_t slot = ring_ + i * p_.slot_bytes;
        reader.fill_zeros(slot + kCodeBytes + p_.segment_scales + p_.segment_zeros,
                          slot + p_.slot_bytes);
      }
    }
  }

  /// Next to be copied is `segment` of `strip`, then of the strips that follow.
  __device__ void begin_copies(uint32_t strip, int segment) {
    const int tile = segment * kSegmentTiles;
    const int tiles = min(kSegmentTiles, w_.tiles - tile);
    codes_from_ = w_.codes + uint64_t{strip} * p_.strip_codes +
                  static_cast<uint32_t>(segment * kCodeBytes + lane_ * 16);
    code_bytes_ = tiles * kTileBytes - lane_ * 16;
    const uint32_t first = block_of(tile);
    const uint32_t blocks = block_of(tile + tiles - 1) - first + 1;
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      const uint32_t at = (i * kLanes + lane_) * 16;
      const bool is_zeros = at >= static_cast<uint32_t>(p_.segment_scales);
      const uint32_t block = is_zeros ? p_.block_zeros : p_.block_scales;
      const uint32_t in_area = is_zeros ? at - p_.segment_scales : at;
      Role& role = roles_[i];
      role.step = is_zeros ? p_.strip_zeros : p_.strip_scales;
      role.works = in_area < blocks * block ? 1 : 0;
      role.from = (is_zeros ? w_.zeros : w_.scales) + uint64_t{strip} * role.step +
                  (first * block + in_area);
    }
  }

  /// Starts the copies of a segment into the slot that was read before the one that is read now.
  __device__ void load() {
    const uint32_t to = to_ + lane_ * 16;
#pragma unroll
    for (int i = 0; i < Reader::kWords; ++i) {
      copy_async_or_zero<16>(to + i * 512, codes_from_ + i * 512, i * 512 < code_bytes_);
    }
    codes_from_ += p_.strip_codes;
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      copy_16_if(roles_[i].works != 0, to + kCodeBytes + i * 512, roles_[i].from, true);
      roles_[i].from += roles_[i].step;
    }
  }

  /// What is read from now on is of this segment.
  __device__ void begin_reads(int segment) {
    const int tile = segment * kSegmentTiles;
    const int first = block_of(tile);
    const int third = block_of(min(tile + 2, w_.tiles - 1));
    block_of_pair1_ = third - first;
    next_blocks_[0] = block_of(min(tile + 1, w_.tiles - 1)) - first;
    next_blocks_[1] = block_of(min(tile + 3, w_.tiles - 1)) - third;
    to_scales_[0] = kCodeBytes + lane_ / 4 * 2 * kGroups * w_.scale.bytes;
    to_scales_[1] = to_scales_[0] + block_of_pair1_ * p_.block_scales;
    to_zeros_[0] = kCodeBytes + p_.segment_scales +
                   (Reader::has_constant_zeros(w_) ? p_.segment_zeros : 0) +
                   lane_ / 4 * 2 * kGroups * Reader::kZeroBytes;
    to_zeros_[1] = to_zeros_[0] + block_of_pair1_ * kBlock * Reader::kZeroBytes;
  }

  /// Where pair 0 or 1 of the segment lies that is read.
  __device__ PairPlace place(int pair) const {
    const int before = pair == 0 ? 0 : block_of_pair1_ * kBlock;
    return {at_ + pair * 2 * kTileBytes + lane_ * Reader::kFirst * 4, at_ + to_scales_[pair],
            at_ + to_zeros_[pair],
            at_ + kCodeBytes + p_.segment_scales + lane_ / 4 * 4 * kGroups + before * 2,
            next_blocks_[pair]};
  }

  /// The next slot is filled. Where slots are read as well, next_slot() does both.
  __device__ void next_slot_to_fill() {
    to_ += p_.slot_bytes;
  }
  __device__ void next_slot() {
    to_ = at_;
    at_ = at_ == last_slot_ ? ring_ : at_ + p_.slot_bytes;
  }

 private:
  static constexpr int kBlock = Reader::kBlock;
  /// Copies of 16 bytes that a lane has to do for scales, and zero points or offsets.
  static constexpr int kMostBytes = 4 + (Decoder::kHasZeros ? 2 : 0);
  static constexpr int kRounds =
      (kSegmentTiles * kBlock * kMostBytes + kLanes * 16 - 1) / (kLanes * 16);

  struct Role {
    const uint8_t* from;
    uint32_t step;  // bytes from strip to strip
    int works;      // 0: nothing to do
  };

  __device__ int block_of(int tile) const {
    if (kGroups > 1 || w_.blocks_per_tile == 0) return tile;
    return __umulhi(tile, w_.blocks_per_tile);
  }

  const WeightArguments& w_;
  const GemvPartition& p_;
  const uint32_t ring_;
  const uint32_t last_slot_;
  uint32_t at_;  // slot that is read
  uint32_t to_;  // slot that is filled next
  const int lane_;

  // What is copied next.
  const uint8_t* codes_from_ = nullptr;
  int code_bytes_ = 0;  // there, from this lane's first on
  Role roles_[kRounds];

  // Of the segment that is read.
  int block_of_pair1_;  // behind that of pair 0
  int next_blocks_[2];  // PairPlace::next_block
  int to_scales_[2];    // of this lane, from the begin of the slot
  int to_zeros_[2];
};

}  // namespace subbyte::cuda
