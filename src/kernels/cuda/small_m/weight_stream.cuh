#pragma once
// One warp's way through its weights in `small_m`: pairs of neighbouring tiles of a strip, whose
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

#include "kernels/cuda/common/pair_mma.cuh"
#include "kernels/cuda/small_m/partition.h"

namespace subbyte::cuda {

/// kGroups: groups of a tile (1, 2 or 4); with 1 a group may also be several tiles.
template <class Decoder, int kGroups>
class PairStream {
 public:
  using Reader = PairReader<Decoder, kGroups>;
  static constexpr int kFirst = Reader::kFirst;
  static constexpr int kSecond = Reader::kSecond;
  static constexpr int kTileBytes = Reader::kTileBytes;
  static constexpr int kZeroBytes = Reader::kZeroBytes;

  /// `ring` of this warp and `scale_values` of fill_scale_values() are shared addresses.
  __device__ PairStream(const WeightArguments& weights, const SmallMPartition& p, uint32_t ring,
                        uint32_t scale_values, int lane)
      : w_(weights),
        p_(p),
        reader_(weights, scale_values, lane),
        ring_(ring + lane * kFirst * 4),
        at_(ring_),
        to_scales_(in_register(2 * kTileBytes - lane * kFirst * 4 +
                               lane / 4 * 2 * kGroups * weights.scale.bytes)),
        to_zeros_(in_register(2 * kTileBytes + p.pair_scales +
                              (Reader::has_constant_zeros(weights) ? p.pair_zeros : 0) -
                              lane * kFirst * 4 + lane / 4 * 2 * kGroups * kZeroBytes)),
        steps_(in_register(p.pairs_per_block == 1)),
        last_slot_(in_register(ring_ + p.ring_bytes - p.slot_bytes)),
        lane_(lane) {
#pragma unroll
    for (int i = 0; i < kRounds; ++i) set_role(roles_[i], (i * kLanes + lane) * 16);
  }

  /// Where zero points are the same everywhere they are not copied: fills the slots with them.
  __device__ void fill_zeros() const {
    if constexpr (Decoder::kHasZeros) {
      if (!Reader::has_constant_zeros(w_)) return;
      const int begin = 2 * kTileBytes + p_.pair_scales + p_.pair_zeros;
      for (int i = 0; i < p_.depth; ++i) {
        const uint32_t slot = ring_ - lane_ * kFirst * 4 + i * p_.slot_bytes;
        reader_.fill_zeros(slot + begin, slot + p_.slot_bytes);
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
    for (int i = 0; i < kRounds; ++i) place_role(roles_[i], tile);
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
        place_role(roles_[i], w_.tiles - tiles_left_);
      }
    }
  }

  /// The next slot is read.
  __device__ void next_slot() {
    at_ = at_ == last_slot_ ? ring_ : at_ + p_.slot_bytes;
  }

  /// Where the pair that is read lies.
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
  __device__ void place_role(Role& role, int tile) const {
    const int block_bytes = p_.one_group ? role.step : role.step / 2;
    const uint64_t block = first_block_ + block_of(tile + role.tile);
    role.from = role.begin + block * block_bytes;
  }
  __device__ uint32_t block_of(int tile) const {
    if (kGroups > 1 || w_.blocks_per_tile == 0) return tile;
    return __umulhi(tile, w_.blocks_per_tile);
  }

  const WeightArguments& w_;
  const SmallMPartition& p_;
  const Reader reader_;
  const uint32_t ring_;  // this lane's codes in slot 0
  uint32_t at_;          // in the slot that is read
  const int to_scales_;  // from there
  const int to_zeros_;
  const int steps_;  // each pair has scales of its own: they follow each other
  const uint32_t last_slot_;
  const int lane_;

  // What is copied next.
  int tiles_left_ = 0;  // of the strip
  const uint8_t* codes_from_ = nullptr;
  uint32_t first_block_ = 0;
  Role roles_[kRounds];
};

}  // namespace subbyte::cuda
