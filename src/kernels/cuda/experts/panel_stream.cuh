#pragma once
// The weights of a warp of a panel kernel on their way to its ring: batches of four K tiles of a
// strip, which are copied by cp.async some batches ahead of their use.
//
//   slot           codes of four tiles | scales | zero points
//   of two levels  codes of four tiles | superblock
//
// Zero points that are the same everywhere are written once, to all slots. Tiles and scales after
// the last ones of a strip are zeros. The protocol of the ring is in common/pair_mma.cuh.

#include <cstdint>

#include "kernels/cuda/common/pair_reader.cuh"
#include "kernels/cuda/experts/panel_partition.h"

namespace subbyte::cuda {

template <class Decoder, int kGroups>
class PanelStream {
 public:
  using Reader = PairReader<Decoder, kGroups>;
  static constexpr int kTile = tile_bytes(Decoder::kBits);
  static constexpr int kDepth = panel_depth(Decoder::kBits);
  static constexpr int kFirst = Reader::kFirst;
  static constexpr int kSecond = Reader::kSecond;

  __device__ PanelStream(const WeightArguments& w, const PanelPartition& p, uint32_t ring, int lane)
      : w_(w),
        p_(p),
        ring_(ring),
        at_(ring),
        last_(ring + (kDepth - 1) * p.slot_bytes),
        lane_(lane),
        scales_(keep_in_register(scales_in_slot(w, lane))),
        zeros_(keep_in_register(zeros_in_slot(p, lane))),
        pair_scales_(keep_in_register(p.pair_blocks * Reader::kBlock * w.scale.bytes)),
        pair_zeros_(keep_in_register(p.pair_blocks * Reader::kBlock * Reader::kZeroBytes)) {
#pragma unroll
    for (int i = 0; i < kCopies; ++i) set_copy(copies_[i], (i * kLanes + lane) * 16);
  }

  /// Zero points that are the same everywhere are not copied: they are in all slots.
  __device__ void fill_constant_zeros(const Reader& reader) const {
    if constexpr (Reader::kZeroBytes > 0) {
      if (!Reader::has_constant_zeros(w_)) return;
      const int begin = kPanelBatch * kTile + p_.scale_bytes;
      for (int i = 0; i < kDepth; ++i) {
        reader.fill_zeros(ring_ + i * p_.slot_bytes + begin, ring_ + (i + 1) * p_.slot_bytes);
      }
    }
  }

  /// The next copies are of that strip from batch `batch` on, of the matrix `offset` bytes after
  /// that of the arguments.
  __device__ void begin_strip(int64_t offset, int strip, int batch) {
    tiles_left_ = w_.tiles - batch * kPanelBatch;
    blocks_left_ = w_.blocks - batch * p_.step_blocks;
    const uint32_t tile = static_cast<uint32_t>(strip) * w_.tiles + batch * kPanelBatch;
    codes_ = w_.codes + offset + uint64_t{tile} * kTile + lane_ * kFirst * 4;
    const uint32_t block = static_cast<uint32_t>(strip) * w_.blocks + batch * p_.step_blocks;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      Copy& copy = copies_[i];
      copy.from = (copy.is_zeros ? w_.zeros : w_.scales) + offset +
                  uint64_t{block} * static_cast<uint32_t>(copy.block_bytes) + copy.at;
    }
  }

  /// Starts the copies of a batch into the current slot. The caller commits.
  __device__ void load() {
    const uint32_t to = at_ + lane_ * kFirst * 4;
#pragma unroll
    for (int i = 0; i < kPanelBatch; ++i) {
      load_tile(to + i * kTile, codes_ + i * kTile, i < tiles_left_);
    }
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      Copy& copy = copies_[i];
      cp_async_16_if(copy.block >= 0, at_ + kPanelBatch * kTile + (i * kLanes + lane_) * 16,
                     copy.from, copy.block < blocks_left_);
      copy.from += copy.stride;
    }
    tiles_left_ -= kPanelBatch;
    blocks_left_ -= p_.step_blocks;
    codes_ += kPanelBatch * kTile;
  }

  /// From now on the next slot is read and filled.
  __device__ void next_slot() {
    at_ = at_ == last_ ? ring_ : at_ + p_.slot_bytes;
  }

  /// The current slot, and its superblock.
  __device__ uint32_t superblock() const {
    return at_ + kPanelBatch * kTile;
  }

  /// Pair `pair` of the current slot.
  __device__ PairPlace place(int pair) const {
    const uint32_t codes = at_ + lane_ * kFirst * 4 + pair * 2 * kTile;
    if constexpr (HasSuperblocks<Decoder>) {
      constexpr int kPair = 2 * SuperblockOf<Decoder, kGroups>::kForm.tile_integers();
      return {codes, at_ + scales_ + pair * kPair, at_ + zeros_, 0, 1};
    }
    return {codes, at_ + scales_ + pair * pair_scales_, at_ + zeros_ + pair * pair_zeros_, 0, 1};
  }

 private:
  static constexpr int kMaxBytes = 4 + Reader::kZeroBytes;  // of a scale and a zero point
  static constexpr int kCopies =
      HasSuperblocks<Decoder>
          ? (SuperblockOf<Decoder, kGroups>::kForm.bytes() + kLanes * 16 - 1) / (kLanes * 16)
          : (kPanelBatch * Reader::kBlock * kMaxBytes + kLanes * 16 - 1) / (kLanes * 16);

  /// Where the scales and the zero points of a lane's rows are, or integers and factors, in a slot.
  static __device__ int scales_in_slot(const WeightArguments& w, int lane) {
    if constexpr (HasSuperblocks<Decoder>) {
      constexpr Superblock kForm = SuperblockOf<Decoder, kGroups>::kForm;
      return kPanelBatch * kTile + kForm.factors() + lane / 4 * kForm.lane_integers();
    }
    return kPanelBatch * kTile + lane / 4 * 2 * kGroups * w.scale.bytes;
  }
  static __device__ int zeros_in_slot(const PanelPartition& p, int lane) {
    if constexpr (HasSuperblocks<Decoder>) {
      return kPanelBatch * kTile + lane / 4 * SuperblockOf<Decoder, kGroups>::kForm.lane_factors();
    }
    return kPanelBatch * kTile + p.scale_bytes + lane / 4 * 2 * kGroups * Reader::kZeroBytes;
  }

  /// 16 bytes of the scales or zero points of a batch.
  struct Copy {
    const uint8_t* from;
    int at;      // of them, in the scales or zero points of a batch
    int stride;  // bytes from batch to batch
    int block;   // their scale block in the batch; -1: nothing is copied
    int block_bytes;
    bool is_zeros;
  };

  __device__ void set_copy(Copy& copy, int at) const {
    copy.is_zeros = at >= p_.scale_bytes;
    copy.at = copy.is_zeros ? at - p_.scale_bytes : at;
    if constexpr (HasSuperblocks<Decoder>) {
      copy.block_bytes = SuperblockOf<Decoder, kGroups>::kForm.bytes();
      copy.block = at < copy.block_bytes ? 0 : -1;
      copy.stride = p_.step_blocks * copy.block_bytes;
      return;
    }
    copy.block_bytes = Reader::kBlock * (copy.is_zeros ? w_.zero_bytes : w_.scale.bytes);
    const bool is_there = copy.at < (copy.is_zeros ? p_.zero_bytes : p_.scale_bytes);
    copy.block = is_there ? copy.at / copy.block_bytes : -1;
    copy.stride = p_.step_blocks * copy.block_bytes;
  }

  __device__ void load_tile(uint32_t to, const uint8_t* from, bool is_there) const {
    cp_async_zfill<kFirst * 4>(to, from, is_there);
    if constexpr (kSecond > 0) {
      const int second = kLanes * kFirst * 4 + lane_ * (kSecond - kFirst) * 4;
#pragma unroll
      for (int i = 0; i < pieces_after_first(Decoder::kBits); ++i) {
        const int piece = second + i * kLanes * kSecond * 4;
        cp_async_zfill<kSecond * 4>(to + piece, from + piece, is_there);
      }
    }
  }

  const WeightArguments& w_;
  const PanelPartition& p_;
  const uint32_t ring_;
  uint32_t at_;
  const uint32_t last_;
  const int lane_;
  const int scales_;  // of this lane in a slot
  const int zeros_;
  const int pair_scales_;  // bytes from pair to pair
  const int pair_zeros_;
  int tiles_left_ = 0;
  int blocks_left_ = 0;
  const uint8_t* codes_ = nullptr;
  Copy copies_[kCopies];
};

}  // namespace subbyte::cuda
