#pragma once
// The weights of a warp of gemv on their way to its ring: the same four tiles (256 inputs, a
// segment) of one strip after the other, so that from one to the next all addresses grow by the
// same numbers.
//
//   slot of the ring   codes of four tiles | scale blocks | zero points or offsets of these |
//                      constant zero points of as many blocks
//
// Scales of two levels are a superblock, with their offsets, and have no zero points.
//
// Tiles may share scale blocks; every slot has room for as many as a segment has at most. Zero
// points that are the same everywhere are written once. After the last tile of a strip codes are
// zero, and scales those of the last tile. The protocol of the ring is in common/pair_mma.cuh.

#include <cstdint>

#include "kernels/cuda/common/pair_mma.cuh"
#include "kernels/cuda/gemv/partition.h"

namespace subbyte::cuda {

template <class Decoder, int kGroups>
class GemvWeightStream {
 public:
  using Reader = PairReader<Decoder, kGroups>;
  static constexpr int kTileBytes = Reader::kTileBytes;
  static constexpr int kCodeBytes = kSegmentTiles * kTileBytes;

  /// `ring` of this warp is a shared address.
  __device__ GemvWeightStream(const WeightArguments& weights, const GemvPartition& p, uint32_t ring,
                              int lane)
      : w_(weights),
        p_(p),
        ring_(ring),
        last_slot_(ring + p.ring_bytes - p.slot_bytes),
        at_(ring),
        to_(ring),
        lane_(lane) {}

  /// Where zero points are the same everywhere they are not copied: writes them to all slots.
  __device__ void fill_constant_zeros(const Reader& reader) const {
    if constexpr (Reader::kZeroBytes > 0) {
      if (!Reader::has_constant_zeros(w_)) return;
      for (int i = 0; i <= kGemvDepth; ++i) {
        const uint32_t slot = ring_ + i * p_.slot_bytes;
        reader.fill_zeros(slot + kCodeBytes + p_.segment_scales + p_.segment_zeros,
                          slot + p_.slot_bytes);
      }
    }
  }

  /// The next loads are of `segment` of `strip`, then of the strips that follow.
  __device__ void begin_loads(uint32_t strip, int segment) {
    const int tile = segment * kSegmentTiles;
    const int tiles = min(kSegmentTiles, w_.tiles - tile);
    codes_from_ = w_.codes + uint64_t{strip} * p_.strip_codes +
                  static_cast<uint32_t>(segment * kCodeBytes + lane_ * 16);
    code_bytes_ = tiles * kTileBytes - lane_ * 16;
    const uint32_t first = block_of(tile);
    const uint32_t blocks = block_of(tile + tiles - 1) - first + 1;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const uint32_t at = (i * kLanes + lane_) * 16;
      // Known to the compiler where there are none: what follows is before the first weights.
      const bool is_zeros = Decoder::kHasZeros && at >= static_cast<uint32_t>(p_.segment_scales);
      const uint32_t block = is_zeros ? p_.block_zeros : p_.block_scales;
      const uint32_t in_area = is_zeros ? at - p_.segment_scales : at;
      ScaleCopy& copy = copies_[i];
      copy.stride = is_zeros ? p_.strip_zeros : p_.strip_scales;
      copy.active = in_area < blocks * block ? 1 : 0;
      copy.from = (is_zeros ? w_.zeros : w_.scales) + uint64_t{strip} * copy.stride +
                  (first * block + in_area);
    }
  }

  /// Starts the copies of a segment into the slot that is filled next: that which was read before
  /// the one that is read now. The caller commits.
  __device__ void load() {
    const uint32_t to = to_ + lane_ * 16;
#pragma unroll
    for (int i = 0; i < Reader::kWords; ++i) {
      cp_async_zfill<16>(to + i * 512, codes_from_ + i * 512, i * 512 < code_bytes_);
    }
    codes_from_ += p_.strip_codes;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      cp_async_16_if(copies_[i].active != 0, to + kCodeBytes + i * 512, copies_[i].from, true);
      copies_[i].from += copies_[i].stride;
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
    if constexpr (HasSuperblocks<Decoder>) return;  // all are at places that are known
    to_scales_[0] = kCodeBytes + lane_ / 4 * 2 * kGroups * w_.scale.bytes;
    to_scales_[1] = to_scales_[0] + block_of_pair1_ * p_.block_scales;
    to_zeros_[0] = kCodeBytes + p_.segment_scales +
                   (Reader::has_constant_zeros(w_) ? p_.segment_zeros : 0) +
                   lane_ / 4 * 2 * kGroups * Reader::kZeroBytes;
    to_zeros_[1] = to_zeros_[0] + block_of_pair1_ * kBlock * Reader::kZeroBytes;
    const int of_lane = block_of(min(tile + lane_ % 4, w_.tiles - 1)) - first;
    to_own_scales_ = to_scales_[0] + of_lane * p_.block_scales;
  }

  /// Where the scales of tile lane % 4 of the segment lie that is read; nothing else is set.
  __device__ PairPlace own_scales() const {
    if constexpr (HasSuperblocks<Decoder>) return superblock_place(0, lane_ % 4);
    return {0, at_ + to_own_scales_, 0, 0, 0};
  }

  /// Where pair 0 or 1 of the segment lies that is read.
  __device__ PairPlace place(int pair) const {
    if constexpr (HasSuperblocks<Decoder>) {
      return superblock_place(pair * 2 * kTileBytes + lane_ * Reader::kFirst * 4, 2 * pair);
    }
    const int scales_before = pair == 0 ? 0 : block_of_pair1_ * kBlock;
    return {at_ + pair * 2 * kTileBytes + lane_ * Reader::kFirst * 4, at_ + to_scales_[pair],
            at_ + to_zeros_[pair],
            at_ + kCodeBytes + p_.segment_scales + lane_ / 4 * 4 * kGroups + scales_before * 2,
            next_blocks_[pair]};
  }

  /// Before the first read: the next slot is filled.
  __device__ void next_slot_to_fill() {
    to_ += p_.slot_bytes;
  }
  /// From then on: the next slot is read, and the one that was read is filled.
  __device__ void next_slot() {
    to_ = at_;
    at_ = at_ == last_slot_ ? ring_ : at_ + p_.slot_bytes;
  }

 private:
  static constexpr int kBlock = Reader::kBlock;
  /// Copies of 16 bytes that a lane has to do for scales, and zero points or offsets.
  static constexpr int kMaxBytes = 4 + (Decoder::kHasZeros ? 2 : 0);
  static constexpr int kCopies =
      HasSuperblocks<Decoder>
          ? 1
          : (kSegmentTiles * kBlock * kMaxBytes + kLanes * 16 - 1) / (kLanes * 16);
  static_assert(!HasSuperblocks<Decoder> ||
                SuperblockOf<Decoder, kGroups>::kForm.bytes() <= kLanes * 16);
  static_assert(kSegmentTiles == kSuperblockTiles);

  struct ScaleCopy {
    const uint8_t* from;
    uint32_t stride;  // bytes from strip to strip
    int active;       // 0: nothing to do
  };

  __device__ int block_of(int tile) const {
    return scale_block_of<Decoder, kGroups>(w_, tile);
  }

  /// With the integers of tile `tile` and those after it.
  __device__ PairPlace superblock_place(int codes, int tile) const {
    constexpr Superblock kForm = SuperblockOf<Decoder, kGroups>::kForm;
    const uint32_t numbers = at_ + kCodeBytes;
    return {at_ + codes,
            numbers + kForm.factors() + tile * kForm.tile_integers() +
                lane_ / 4 * kForm.lane_integers(),
            numbers + lane_ / 4 * kForm.lane_factors(), 0, 1};
  }

  const WeightArguments& w_;
  const GemvPartition& p_;
  const uint32_t ring_;
  const uint32_t last_slot_;
  uint32_t at_;  // slot that is read
  uint32_t to_;  // slot that is filled next
  const int lane_;

  // What is loaded next.
  const uint8_t* codes_from_ = nullptr;
  int code_bytes_ = 0;  // there, from this lane's first on
  ScaleCopy copies_[kCopies];

  // Of the segment that is read.
  int block_of_pair1_;  // after that of pair 0
  int next_blocks_[2];  // PairPlace::next_block
  int to_scales_[2];    // of this lane, from the begin of the slot
  int to_zeros_[2];
  int to_own_scales_;
};

}  // namespace subbyte::cuda
