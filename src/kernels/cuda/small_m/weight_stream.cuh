#pragma once
// The weights of a warp of small_m on their way to its ring: pairs of neighbouring tiles of a
// strip, whose codes, scales and zero points are copied some pairs ahead of their use.
//
//   slot of the ring   codes of tile 0 | of tile 1 | scales of 0 | of 1 | zero points of 0 | of 1
//   with offsets       codes of tile 0 | of tile 1 | scales of 0 | of 1 | offsets of 0 | of 1 |
//                      constant zero points of 0 | of 1
//
//   of two levels    codes of tile 0 | of tile 1 | factors | integers of 0 | of 1
//
// of which the scales, zero points and offsets of tile 1 are left out where those of tile 0 are the
// same. Zero points that are the same everywhere are written once: so all formats are read in one
// way. Where a strip has an odd number of tiles its last pair is filled up with zeros. The protocol
// of the ring is in common/pair_mma.cuh.

#include <cstdint>

#include "kernels/cuda/common/pair_mma.cuh"
#include "kernels/cuda/small_m/partition.h"

namespace subbyte::cuda {

template <class Decoder, int kGroups>
class SmallMWeightStream {
 public:
  using Reader = PairReader<Decoder, kGroups>;
  static constexpr int kFirst = Reader::kFirst;
  static constexpr int kSecond = Reader::kSecond;
  static constexpr int kTileBytes = Reader::kTileBytes;
  static constexpr int kZeroBytes = Reader::kZeroBytes;

  /// `ring` of this warp and `scale_values` of fill_scale_values() are shared addresses.
  __device__ SmallMWeightStream(const WeightArguments& weights, const SmallMPartition& p,
                                uint32_t ring, uint32_t scale_values, int lane)
      : w_(weights),
        p_(p),
        reader_(weights, scale_values, lane),
        ring_(ring + lane * kFirst * 4),
        at_(ring_),
        to_scales_(
            keep_in_register(2 * kTileBytes - lane * kFirst * 4 + scales_in_slot(weights, lane))),
        to_zeros_(
            keep_in_register(2 * kTileBytes - lane * kFirst * 4 + zeros_in_slot(weights, p, lane))),
        scales_follow_(keep_in_register(static_cast<int>(p.pairs_per_block == 1))),
        last_slot_(keep_in_register(ring_ + p.ring_bytes - p.slot_bytes)),
        lane_(lane) {
#pragma unroll
    for (int i = 0; i < kCopies; ++i) set_copy(copies_[i], (i * kLanes + lane) * 16);
  }

  /// Where zero points are the same everywhere they are not copied: writes them to all slots.
  __device__ void fill_constant_zeros() const {
    if constexpr (Reader::kZeroBytes > 0) {
      if (!Reader::has_constant_zeros(w_)) return;
      const int begin = 2 * kTileBytes + p_.pair_scales + p_.pair_zeros;
      for (int i = 0; i < p_.depth; ++i) {
        const uint32_t slot = ring_ - lane_ * kFirst * 4 + i * p_.slot_bytes;
        reader_.fill_zeros(slot + begin, slot + p_.slot_bytes);
      }
    }
  }

  /// The next load is of tiles `tile`, which is even, and tile + 1 of `strip`.
  __device__ void begin_loads(int strip, int tile) {
    const uint32_t number = static_cast<uint32_t>(strip) * w_.tiles + tile;
    tiles_left_ = w_.tiles - tile;
    codes_from_ = w_.codes + uint64_t{number} * kTileBytes + lane_ * kFirst * 4;
    first_block_ = static_cast<uint32_t>(strip) * w_.blocks;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) place_copy(copies_[i], tile);
  }

  /// Starts the copies of the next pair into the current slot, and goes on to the pair after. The
  /// caller commits.
  __device__ void load() {
    const bool second = tiles_left_ > 1;
    cp_async<kFirst * 4>(at_, codes_from_);
    cp_async_zfill<kFirst * 4>(at_ + kTileBytes, codes_from_ + kTileBytes, second);
    if constexpr (kSecond > 0) {
      const int to_second = kLanes * kFirst * 4 + lane_ * (kSecond - kFirst) * 4;
#pragma unroll
      for (int i = 0; i < pieces_after_first(Decoder::kBits); ++i) {
        const int to = to_second + i * kLanes * kSecond * 4;
        cp_async<kSecond * 4>(at_ + to, codes_from_ + to);
        cp_async_zfill<kSecond * 4>(at_ + to + kTileBytes, codes_from_ + to + kTileBytes, second);
      }
    }
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const ScaleCopy& copy = copies_[i];
      const uint32_t to = at_ + 2 * kTileBytes + lane_ * (16 - kFirst * 4) + i * kLanes * 16;
      cp_async_16_if(copy.tile < 2, to, copy.from, copy.tile < tiles_left_);
    }
    tiles_left_ -= 2;
    codes_from_ += 2 * kTileBytes;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      if (scales_follow_ != 0) {
        copies_[i].from += copies_[i].stride;
      } else {
        place_copy(copies_[i], w_.tiles - tiles_left_);
      }
    }
  }

  /// From now on the next slot is read and filled.
  __device__ void next_slot() {
    at_ = at_ == last_slot_ ? ring_ : at_ + p_.slot_bytes;
  }

  /// Where the pair in the current slot lies.
  __device__ PairPlace place() const {
    return {at_, at_ + to_scales_, at_ + to_zeros_,
            at_ + 2 * kTileBytes + p_.pair_scales - lane_ * kFirst * 4 + lane_ / 4 * 4 * kGroups,
            1};
  }
  __device__ const Reader& reader() const {
    return reader_;
  }

 private:
  static constexpr int kBlock = Reader::kBlock;

  /// Copies of 16 bytes that a lane has to do for the scales and zero points of a pair.
  static constexpr int kMaxBytes = 4 + (Decoder::kHasZeros ? 2 : 0);  // of a scale and an offset
  static constexpr int kCopies =
      HasSuperblocks<Decoder> ? 1 : (2 * kBlock * kMaxBytes + kLanes * 16 - 1) / (kLanes * 16);

  using OfSuperblock = SuperblockOf<Decoder, kGroups>;

  /// Where the scales and the zero points of a lane's rows are, or integers and factors, from the
  /// end of the codes on.
  static __device__ int scales_in_slot(const WeightArguments& w, int lane) {
    constexpr Superblock kForm = OfSuperblock::kForm;
    if constexpr (HasSuperblocks<Decoder>) {
      return kForm.factors() + lane / 4 * kForm.lane_integers();
    }
    return lane / 4 * 2 * kGroups * w.scale.bytes;
  }
  static __device__ int zeros_in_slot(const WeightArguments& w, const SmallMPartition& p,
                                      int lane) {
    if constexpr (HasSuperblocks<Decoder>) {
      return lane / 4 * OfSuperblock::kForm.lane_factors();
    }
    return p.pair_scales + (Reader::has_constant_zeros(w) ? p.pair_zeros : 0) +
           lane / 4 * 2 * kGroups * kZeroBytes;
  }

  /// One of them.
  struct ScaleCopy {
    int tile;    // whose scales or zero points it copies; more than 1: nothing
    int stride;  // bytes from pair to pair
    const uint8_t* from;
    const uint8_t* begin;  // of its bytes in block 0
  };
  __device__ void set_copy(ScaleCopy& copy, int at) const {
    if constexpr (HasSuperblocks<Decoder>) {
      copy.tile = at < p_.pair_scales ? 0 : 2;
      copy.begin = w_.scales + at;
      copy.stride =
          at < OfSuperblock::kForm.factors() ? 0 : 2 * OfSuperblock::kForm.tile_integers();
      return;
    }
    const bool is_zeros = at >= p_.pair_scales;
    const int block = kBlock * (is_zeros ? w_.zero_bytes : w_.scale.bytes);
    const int in_pair = is_zeros ? at - p_.pair_scales : at;
    const bool active = in_pair < (is_zeros ? p_.pair_zeros : p_.pair_scales);
    const int tile = in_pair >= block ? 1 : 0;
    copy.tile = active ? tile : 2;
    copy.stride = block * (p_.one_group ? 1 : 2);
    copy.begin = (is_zeros ? w_.zeros : w_.scales) + in_pair - tile * block;
  }
  __device__ void place_copy(ScaleCopy& copy, int tile) const {
    if constexpr (HasSuperblocks<Decoder>) {
      const uint64_t superblock = first_block_ + block_of(tile);
      copy.from = copy.begin + superblock * OfSuperblock::kForm.bytes() +
                  (tile % kSuperblockTiles == 0 ? 0 : copy.stride);
      return;
    }
    const int block_bytes = p_.one_group ? copy.stride : copy.stride / 2;
    const uint64_t block = first_block_ + block_of(tile + copy.tile);
    copy.from = copy.begin + block * block_bytes;
  }
  __device__ uint32_t block_of(int tile) const {
    return scale_block_of<Decoder, kGroups>(w_, tile);
  }

  const WeightArguments& w_;
  const SmallMPartition& p_;
  const Reader reader_;
  const uint32_t ring_;  // this lane's codes in slot 0
  uint32_t at_;          // in the current slot
  const int to_scales_;  // from there
  const int to_zeros_;
  const int scales_follow_;  // each pair has scales of its own, next to each other
  const uint32_t last_slot_;
  const int lane_;

  // What is loaded next.
  int tiles_left_ = 0;  // of the strip
  const uint8_t* codes_from_ = nullptr;
  uint32_t first_block_ = 0;
  ScaleCopy copies_[kCopies];
};

}  // namespace subbyte::cuda
