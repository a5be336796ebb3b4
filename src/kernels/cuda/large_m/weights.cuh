#pragma once
// The weights of large_m on their way from device memory to operand A of wgmma.
//
// Producer warps copy them to shared memory, weight_batch() K tiles at a time of all strips that
// the CTA multiplies, with their scales and zero points as they are: a warp for each kind of bytes,
// as lanes start their cp.async.bulk one after the other, and a lane for each strip.
// `weight_slots` of such batches are a ring with a full and an empty mbarrier for each slot, as
// kernel.cuh says.
//
//   slot   [strip, one for each consumer warp] [codes of 4 (or 2) tiles | scales | zero points]
//
// Where scales have two levels a batch ends with its superblock, which comes with it whole.
//
// Four lanes, 4 g to 4 g + 3, decode weights of rows g and g + 8 and need the same scales. At the
// begin of a batch each of them prepares in its registers what one tile needs (both scales and
// offsets as 16-bit numbers, and what the decoder needs of both zero points), and shares it when
// the turn of that tile comes. What is needed next, words of the next tile and scales of the next
// batch, is loaded while products are under way:
//
//   tile of the batch  0      1      2      3
//   lane 4 g + 0       ready  <----  <----  <----     (a shuffle for each group)
//   lane 4 g + 1       ---->  ready  <----  <----
//
// Scales and offsets of two levels are rounded to 16 bits there, once each: they are exact before.

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/common/arguments.h"
#include "kernels/cuda/common/prologue_epilogue.cuh"
#include "kernels/cuda/common/ptx.cuh"
#include "kernels/cuda/large_m/partition.h"

namespace subbyte::cuda {

/// Two neighbours of kBytes (1, 2 or 4) bytes in shared memory: of rows g and g + 8.
struct TwoCodes {
  uint32_t even;
  uint32_t odd;
};

template <int kBytes>
__device__ __forceinline__ TwoCodes ld_shared_two(uint32_t address) {
  if constexpr (kBytes == 4) {
    uint32_t words[2];
    ld_shared<2>(words, address);
    return {words[0], words[1]};
  } else if constexpr (kBytes == 2) {
    uint32_t both;
    ld_shared<1>(&both, address);
    return {both & 0xffff, both >> 16};
  } else {
    const uint32_t both = ld_shared_u16(address);
    return {both & 0xff, both >> 8};
  }
}

/// The low or the high half of `x2` in both halves. Instructions on two halves have that for free.
__device__ __forceinline__ uint32_t low_twice(uint32_t x2) {
  uint32_t d;
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {l, l};}" : "=r"(d) : "r"(x2));
  return d;
}
__device__ __forceinline__ uint32_t high_twice(uint32_t x2) {
  uint32_t d;
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {h, h};}" : "=r"(d) : "r"(x2));
  return d;
}

/// Sizes in bytes that depend on the types of scales and zero points. A superblock is bytes.
struct StreamSizes {
  int scale;
  int zero;    // or offset; 0: none in memory
  int stream;  // of a batch of one strip
};

template <class Decoder, int kGroups, int kBatch = weight_batch(Decoder::kBits)>
__device__ __forceinline__ StreamSizes stream_sizes(const WeightArguments& w) {
  if constexpr (HasSuperblocks<Decoder>) {
    return {1, 0,
            large_m_stream_bytes(kBatch, Decoder::kBits, SuperblockOf<Decoder, kGroups>::kForm)};
  }
  const int zero = Decoder::kHasZeros && w.zeros != nullptr ? w.zero_bytes : 0;
  return {w.scale.bytes, zero,
          large_m_stream_bytes(kBatch, Decoder::kBits, kGroups, w.scale.bytes, zero)};
}

/// Tiles of a batch that begins with `tile`: those of a superblock are in one batch.
template <class Decoder, int kBatch>
__device__ __forceinline__ int tiles_of_batch(int tile, int end) {
  if constexpr (HasSuperblocks<Decoder>) {
    static_assert(kBatch == kSuperblockTiles);
    return min(kBatch - tile % kBatch, end - tile);
  }
  return min(kBatch, end - tile);
}

/// Of all lanes: a value that stays in a register, as the compiler cannot know that it is the same
/// and compute it again, which takes a while, in a loop.
__device__ __forceinline__ uint32_t pinned(uint32_t value) {
  return __shfl_sync(~0u, value, threadIdx.x % kLanes);
}
__device__ __forceinline__ uint32_t lane_in_register() {
  return pinned(threadIdx.x % kLanes);
}

/// The mbarriers of the ring of weights, and a position in it.
struct WeightRing {
  uint32_t full;   // [slots], each 8 bytes
  uint32_t empty;  // [slots]
  int slots;
  int slot = 0;
  int phase = 0;
  __device__ void next() {
    if (++slot == slots) {
      slot = 0;
      phase ^= 1;
    }
  }
};

/// The producer warps: each copies one kind of bytes, as a warp starts one copy after the other.
template <class Decoder, int kGroups, int kBatch = weight_batch(Decoder::kBits)>
class WeightProducer {
 public:
  /// `to`: address of the ring's first slot.
  __device__ WeightProducer(const WeightArguments& w, uint32_t to, const WeightRing& ring)
      : w_(w), to_(to), ring_(ring), lane_(threadIdx.x % kLanes) {}

  /// By producer warp `kind`: codes (0), scales (1), zero points (2) of K tiles begin to end - 1 of
  /// the strips of an output tile, of the matrix `offset` bytes after that of the arguments.
  __device__ void copy(int kind, int64_t offset, int tile_n, int begin, int end) {
    const StreamSizes size = stream_sizes<Decoder, kGroups, kBatch>(w_);
    // Bytes of a tile of codes, or of a scale block.
    const int unit = kind == 0 ? kTile : kBlock * (kind == 1 ? size.scale : size.zero);
    if (unit == 0) return;
    // Strips beyond the matrix repeat its last one; their results are not stored.
    const uint32_t strip = min(tile_n * kStreams + lane_ % kStreams, w_.strips - 1);
    const uint8_t* const from = (kind == 0   ? w_.codes
                                 : kind == 1 ? w_.scales
                                             : w_.zeros) +
                                offset +
                                uint64_t{strip * (kind == 0 ? w_.tiles : w_.blocks)} * unit;
    const uint32_t to = to_ + lane_ * size.stream + (kind == 0 ? 0 : kBatch * kTile) +
                        (kind == 2 ? kBatch * kBlock * size.scale : 0);
#pragma unroll 1
    for (int tile = begin, tiles = 0; tile < end; tile += tiles, ring_.next()) {
      tiles = tiles_of_batch<Decoder, kBatch>(tile, end);
      const int block = scale_block_of<Decoder, kGroups>(w_, tile);
      const int blocks = scale_block_of<Decoder, kGroups>(w_, tile + tiles - 1) + 1 - block;
      const uint32_t full = ring_.full + ring_.slot * 8;
      mbarrier_wait(ring_.empty + ring_.slot * 8, ring_.phase ^ 1);
      if (kind == 0 && lane_ == 0) {
        const int scales = blocks * kBlock * (size.scale + size.zero);
        mbarrier_arrive_expect_tx(full, kStreams * (tiles * kTile + scales));
      }
      __syncwarp();
      if (lane_ >= kStreams) continue;
      cp_async_bulk(to + ring_.slot * kStreams * size.stream,
                    from + uint64_t{static_cast<uint32_t>(kind == 0 ? tile : block)} * unit,
                    (kind == 0 ? tiles : blocks) * unit, full);
    }
  }

 private:
  static constexpr int kStreams = 8;
  static constexpr int kTile = tile_bytes(Decoder::kBits);
  /// Scales of a scale block, or bytes of a superblock.
  static constexpr int kBlock = HasSuperblocks<Decoder>
                                    ? SuperblockOf<Decoder, kGroups>::kForm.bytes()
                                    : kGroups * kStripRows;

  const WeightArguments& w_;
  const uint32_t to_;
  WeightRing ring_;
  const int lane_;
};

/// A consumer warp's view of its strip.
template <class Number, class Decoder, int kGroups>
class WeightConsumer {
 public:
  static constexpr int kWords = Decoder::kBits;
  static constexpr int kBatch = weight_batch(kWords);
  static constexpr int kStepsPerGroup = kSteps / kGroups;

  /// Of a group of the current tile, of both rows.
  struct Group {
    uint32_t scales;
    uint32_t zeros;
    uint32_t offsets;
  };

  /// Of warp `warp` of eight. `scale_values` of fill_scale_values(); `shared`: address of the
  /// ring's slots.
  __device__ WeightConsumer(const WeightArguments& weights, const Table& table,
                            const float* scale_values, uint32_t shared, const WeightRing& ring,
                            int warp)
      : w_(weights), table_(table), scale_values_(scale_values), ring_(ring) {
    const StreamSizes size = stream_sizes<Decoder, kGroups>(weights);
    ring_.full = keep_in_register(ring.full);
    ring_.empty = keep_in_register(ring.empty);
    zero_size_ = keep_in_register(size.zero);
    slot_bytes_ = keep_in_register(8 * size.stream);
    first_ = shared + warp * size.stream;
    is_plain_ = size.scale == 2 && weights.scale.shift != 16 && size.zero <= 1 &&
                weights.zero_kind == ZeroKind::kInteger;
  }

  /// Before the products of an item: addresses of the lane. They are made for each, as the calls
  /// between two of them leave few registers.
  __device__ void begin_item() {
    lane_ = lane_in_register();
    codes_at_ = pinned(first_ + lane_ * (kFirst * 4));
    if constexpr (!HasSuperblocks<Decoder>) {
      const uint32_t mine = kGroups > 1 ? lane_ % kBatch * (kBlock / 2) : 0;
      const uint32_t at = (mine + lane_ / 4 * kGroups) * 2;
      const uint32_t scales = first_ + kBatch * tile_bytes(kWords);
      scales_at_ = pinned(scales + at * w_.scale.bytes / 4 * 4);
      zeros_at_ = pinned(scales + kBatch * kBlock * w_.scale.bytes + at * zero_size_ / 4 * 4);
    }
  }

  /// Waits for the batch that the ring is at.
  __device__ void wait_for_batch() const {
    mbarrier_wait(ring_.full + ring_.slot * 8, ring_.phase);
  }

  /// Starts the loads of its scales and zero points; it begins with K tile `tile`. Without a
  /// branch, around which ptxas would serialize wgmma (C7513).
  __device__ void load_batch(int tile) {
    slot_at_ = ring_.slot * slot_bytes_;
    const uint32_t mine = lane_ % kBatch;
    if constexpr (HasSuperblocks<Decoder>) {
      load_two_levels((tile + mine) % kBatch);
    } else {
      // Of several groups each tile has a block, which is in the lane's address.
      const uint32_t block = kGroups > 1 ? 0
                                         : scale_block_of<Decoder, kGroups>(w_, tile + mine) -
                                               scale_block_of<Decoder, kGroups>(w_, tile);
      load_scales(slot_at_ + scales_at_ + block * (kBlock * w_.scale.bytes));
      if constexpr (Decoder::kHasZeros) {
        load_zeros(slot_at_ + zeros_at_ + block * (kBlock * zero_size_));
      }
    }
  }

  /// Makes numbers of what load_batch() has loaded, once the batch before is not needed any more.
  __device__ void begin_batch() {
    codes_ = keep_in_register(slot_at_ + codes_at_);
    if constexpr (HasSuperblocks<Decoder>) {
      prepare_two_levels();
    } else {
      if (is_plain_) {
        prepare_plain();
        return;
      }
      if (w_.scale.bytes == 2) {
        prepare_scales<2>();
      } else if (w_.scale.bytes == 1) {
        prepare_scales<1>();
      } else {
        prepare_scales<4>();
      }
      if constexpr (Decoder::kHasZeros) prepare_zeros();
    }
  }

  /// Starts the loads of the words of tile `tile` of the batch, and its first group.
  __device__ void load_tile(int tile) {
    read_codes(tile, next_codes_);
    next_group_ = group(tile, 0);
  }
  /// What load_tile() has loaded.
  __device__ Group take_tile(uint32_t (&words)[kWords]) const {
#pragma unroll
    for (int i = 0; i < kWords; ++i) words[i] = next_codes_[i];
    return next_group_;
  }

  /// Moves the ring on, and returns the slot of the batch that begins.
  __device__ int next_slot() {
    const int slot = ring_.slot;
    ring_.next();
    return slot;
  }

  /// Releases a slot. One lane arrives for all after __syncwarp(), which orders what they have
  /// read. (racecheck does not follow that and reports the reads of the other lanes; if all lanes
  /// arrive it reports nothing.)
  __device__ void release(int slot) const {
    __syncwarp();
    if (lane_ == 0) mbarrier_arrive(ring_.empty + slot * 8);
  }

  /// The words of tile `tile` of the batch.
  __device__ void read_codes(int tile, uint32_t (&words)[kWords]) const {
    const uint32_t at = codes_ + tile * tile_bytes(kWords);
    ld_shared<kFirst>(words, at);
    if constexpr (kSecond > 0) {
      constexpr int kSecondAt = kLanes * kFirst * 4;
      const int step = static_cast<int>(lane_) * ((kSecond - kFirst) * 4);
#pragma unroll
      for (int i = 0; i < pieces_after_first(kWords); ++i) {
        ld_shared<kSecond>(words + kFirst + i * kSecond,
                           at + kSecondAt + step + i * kLanes * kSecond * 4);
      }
    }
  }

  /// Of group `group` of tile `tile` of the batch.
  __device__ Group group(int tile, int group) const {
    const int from = lane_ / kBatch * kBatch + tile;
    Group now = {__shfl_sync(~0u, scales_[group], from), 0, 0};
    if constexpr (Decoder::kHasZeros && !HasSuperblocks<Decoder>) {
      now.zeros = __shfl_sync(~0u, zeros_[group], from);
    }
    if constexpr (kHasOffsets) now.offsets = __shfl_sync(~0u, offsets_[group], from);
    return now;
  }

  /// Step `step` of a tile: weights times scales, plus offsets.
  __device__ void decode(const uint32_t (&words)[kWords], int step, const Group& group,
                         uint32_t (&registers)[4]) const {
    ZeroPair zeros = {low_twice(group.zeros), high_twice(group.zeros)};
    if constexpr (Decoder::kHasZeros && HasSuperblocks<Decoder>) {
      zeros = Decoder::zeros(OfSuperblock::kZero, OfSuperblock::kZero);
    }
    decode_step<Decoder>(words, step, zeros, table_, registers);
    const uint32_t scales[2] = {low_twice(group.scales), high_twice(group.scales)};
    const uint32_t offsets[2] = {low_twice(group.offsets), high_twice(group.offsets)};
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      registers[r] = kHasOffsets ? Number::fma(registers[r], scales[r % 2], offsets[r % 2])
                                 : Number::mul(registers[r], scales[r % 2]);
    }
  }

 private:
  static constexpr int kFirst = first_piece(kWords);
  static constexpr int kSecond = second_piece(kWords);
  using OfSuperblock = SuperblockOf<Decoder, kGroups>;
  static constexpr bool kHasOffsets =
      HasSuperblocks<Decoder> ? OfSuperblock::kHasOffsets : Decoder::kHasZeros;
  static constexpr int kBlock = kGroups * kStripRows;     // scales of a scale block
  static constexpr uint32_t kNegativeZeros = 0x80008000;  // a sum with -0 keeps its bits

  template <int kBytes>
  __device__ float scale_of(uint32_t code) const {
    if constexpr (kBytes == 1) return scale_values_[code];
    if constexpr (kBytes == 2) {
      const uint16_t bits = static_cast<uint16_t>(code);
      return w_.scale.shift == 16 ? BF16::to_float(bits) : F16::to_float(bits);
    }
    return __uint_as_float(code);
  }

  /// Scales of the batch.
  __device__ uint32_t raw_scales() const {
    return first_ + slot_at_ + kBatch * tile_bytes(kWords);
  }

  /// What most matrices have: scales in f16, and zero points of a byte or none in memory.
  __device__ void prepare_plain() {
    const float factor = w_.scale_factor;
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      const uint32_t both = loaded_scales_[i].even;
      scales_[i] = Number::pack_x2(F16::to_float(static_cast<uint16_t>(both)) * factor,
                                   F16::to_float(static_cast<uint16_t>(both >> 16)) * factor);
      if constexpr (Decoder::kHasZeros) {
        const uint32_t constant = w_.zero;
        TwoCodes zero = two_codes<1>({loaded_zeros_[i], 0}, i);
        if (zero_size_ == 0) zero = {constant, constant};
        zeros_[i] = constants_of(zero);
        offsets_[i] = kNegativeZeros;
      }
    }
  }

  /// Of row lane / 4, from that address on.
  __device__ void load_scales(uint32_t from) {
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      const uint32_t word = from + 2 * i * w_.scale.bytes / 4 * 4;
      ld_shared<1>(&loaded_scales_[i].even, word);
      ld_shared<1>(&loaded_scales_[i].odd, word + 4);
    }
  }

  template <int kBytes>
  __device__ void prepare_scales() {
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      const TwoCodes code = two_codes<kBytes>(loaded_scales_[i], i);
      scales_[i] = Number::pack_x2(scale_of<kBytes>(code.even) * w_.scale_factor,
                                   scale_of<kBytes>(code.odd) * w_.scale_factor);
    }
  }

  /// The neighbours of group `group` out of the words that have both.
  template <int kBytes>
  __device__ TwoCodes two_codes(const TwoCodes& loaded, int group) const {
    if constexpr (kBytes == 4) return loaded;
    if constexpr (kBytes == 2) return {loaded.even & 0xffff, loaded.even >> 16};
    const uint32_t both = loaded.even >> (lane_ / 4 * kGroups + group) % 2 * 16;
    return {both & 0xff, both >> 8 & 0xff};
  }

  /// Of tile `tile` of the superblock.
  __device__ void load_two_levels(uint32_t tile) {
    constexpr Superblock kForm = OfSuperblock::kForm;
    numbers_.load_factors(raw_scales() + lane_ / 4 * kForm.lane_factors());
    numbers_.load_tile(raw_scales() + kForm.factors() + tile * kForm.tile_integers() +
                       lane_ / 4 * kForm.lane_integers());
  }
  __device__ void prepare_two_levels() {
    const float factor = w_.scale_factor;
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      const float2 scale = numbers_.scale(i);
      scales_[i] = Number::pack_x2(scale.x * factor, scale.y * factor);
      if constexpr (kHasOffsets) {
        const float2 offset = numbers_.offset(i);
        offsets_[i] = Number::pack_x2(offset.x * factor, offset.y * factor);
      }
    }
  }

  __device__ void load_zeros(uint32_t from) {
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      ld_shared<1>(&loaded_zeros_[i], from + 2 * i * zero_size_ / 4 * 4);
    }
  }

  __device__ void prepare_zeros() {
    const bool has_offsets = w_.zero_kind != ZeroKind::kInteger;
    const uint32_t constant = w_.zero;
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      TwoCodes zero = {constant, constant};
      if (zero_size_ == 1) zero = two_codes<1>({loaded_zeros_[i], 0}, i);
      if (zero_size_ == 2) zero = two_codes<2>({loaded_zeros_[i], 0}, i);
      offsets_[i] = kNegativeZeros;
      if (has_offsets) {
        offsets_[i] = Number::pack_x2(offset_of(zero.even), offset_of(zero.odd));
        zero = {constant, constant};
      }
      zeros_[i] = constants_of(zero);
    }
  }

  __device__ static uint32_t constants_of(const TwoCodes& zero) {
    const ZeroPair constants = Decoder::zeros(zero.even, zero.odd);
    return __byte_perm(constants.even, constants.odd, 0x5410);
  }

  __device__ float offset_of(uint32_t code) const {
    const uint16_t bits = static_cast<uint16_t>(code);
    const bool is_f16 = w_.zero_kind == ZeroKind::kF16;
    return (is_f16 ? F16::to_float(bits) : BF16::to_float(bits)) * w_.scale_factor;
  }

  const WeightArguments& w_;
  const Table& table_;
  const float* const scale_values_;
  WeightRing ring_;
  uint32_t lane_;
  uint32_t zero_size_;  // or of an offset; 0: none in memory
  uint32_t slot_bytes_;
  uint32_t first_;      // addresses in slot 0: of this warp's batch,
  uint32_t codes_at_;   // of the lane's codes,
  uint32_t scales_at_;  // of its scales
  uint32_t zeros_at_;   // and zero points;
  uint32_t slot_at_;    // from there to the slot that is read
  bool is_plain_;       // prepare_plain()
  uint32_t codes_;      // of this lane's words in that batch
  // What is loaded for the next tile, and for the next batch: words with both neighbours.
  uint32_t next_codes_[kWords];
  Group next_group_;
  struct Nothing {};
  std::conditional_t<HasSuperblocks<Decoder>, TwoLevels<Decoder, kGroups>, Nothing> numbers_;
  TwoCodes loaded_scales_[kGroups];
  uint32_t loaded_zeros_[Decoder::kHasZeros ? kGroups : 1];
  // Of the batch, of this lane's tile of it:
  uint32_t scales_[kGroups];
  uint32_t zeros_[Decoder::kHasZeros ? kGroups : 1];
  uint32_t offsets_[Decoder::kHasZeros ? kGroups : 1];
};

}  // namespace subbyte::cuda
