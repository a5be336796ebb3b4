#pragma once
// One warp's way through its weights: codes come in registers kDepth tiles ahead of their use,
// scales and zero points in shared memory a segment (kDepth tiles) ahead. Nothing else of a kernel
// depends on the format.

#include <cstdint>

#include "kernels/cuda/device/arguments.h"
#include "kernels/cuda/device/decoders.h"
#include "kernels/cuda/device/mma.cuh"

namespace subbyte::cuda {

/// Tiles of one strip that one warp reads together; count 0: none.
struct Segment {
  int strip = 0;
  int tile = 0;
  int count = 0;
};

/// Scales or zero points of a lane's two rows.
struct RowPair {
  uint32_t even;  // row g
  uint32_t odd;   // row g + 8
};

/// Two neighbours of `bytes` (1, 2 or 4) bytes each, with whatever is above them in their words.
__device__ __forceinline__ RowPair load_pair(const uint8_t* p, int bytes) {
  const uint32_t address = shared_address(p);
  uint32_t low;
  uint32_t high;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(low) : "r"(address & ~3u));
  low >>= address % 4 * 8;
  high = low >> (8 * bytes % 32);
  if (bytes == 4) asm volatile("ld.shared.u32 %0, [%1];" : "=r"(high) : "r"(address + 4));
  return {low, high};
}

__device__ __forceinline__ float scale_value(uint32_t code, const ScaleRule& rule) {
  const uint32_t magnitude = code & rule.magnitude;
  const uint32_t bits = magnitude << rule.shift | (code & rule.sign) << rule.sign_shift;
  const float value = magnitude == 0 ? rule.zero : __uint_as_float(bits) * rule.factor;
  return magnitude >= rule.special ? __uint_as_float(0x7fc00000u) : value;
}

/// kGroups: groups of a tile (1, 2 or 4); with 1 a group may also be several tiles.
template <class Decoder, int kGroups, int kTilesAhead>
class WeightStream {
 public:
  static constexpr int kWords = Decoder::kBits;
  static constexpr int kDepth = kTilesAhead;
  static constexpr int kFirst = first_piece(kWords);
  static constexpr int kSecond = second_piece(kWords);

  /// Bytes of shared memory for each warp.
  static __host__ __device__ constexpr int shared_bytes(int scale_size, int zero_size) {
    return 2 * kDepth * kGroups * kStripRows * (scale_size + zero_size);
  }

  __device__ WeightStream(const WeightArguments& weights, uint8_t* shared, int lane)
      : w_(weights),
        scale_size_(weights.scale.bytes),
        zero_size_(Decoder::kHasZeros && weights.zeros != nullptr ? weights.zero_bytes : 0),
        shared_(shared),
        lane_(lane) {}

  /// Starts the copies of a segment's scales and zero points into buffer `buffer` (0 or 1).
  __device__ void load_scales(const Segment& s, int buffer) {
    if (s.count > 0) {
      const int begin = s.tile / w_.tiles_per_block;
      const int end = (s.tile + s.count - 1) / w_.tiles_per_block + 1;
      const int64_t block = int64_t{s.strip} * w_.blocks + begin;
      copy(buffer_at(buffer), w_.scales, block, end - begin, kGroups * kStripRows * scale_size_);
      if (zero_size_ != 0) {
        copy(zeros_at(buffer), w_.zeros, block, end - begin, kGroups * kStripRows * zero_size_);
      }
    }
    commit_copies();
  }

  /// Reads slot `slot` of the segment: the codes of tile `slot`.
  __device__ void load_codes(const Segment& s, int slot, uint32_t (&words)[kWords]) const {
    const uint8_t* tile = w_.codes + (int64_t{s.strip} * w_.tiles + s.tile + slot) *
                                         tile_bytes(Decoder::kBits);
    load_once<kFirst>(words, tile + lane_ * kFirst * 4);
    if constexpr (kSecond > 0) {
      load_once<kSecond>(words + kFirst, tile + kLanes * kFirst * 4 + lane_ * kSecond * 4);
    }
  }

  /// Scales of rows lane / 4 and lane / 4 + 8 in group `group` of tile `slot` of the segment whose
  /// scales are in `buffer`.
  __device__ float2 scales(const Segment& s, int buffer, int slot, int group) const {
    const RowPair codes =
        load_pair(buffer_at(buffer) + index(s, slot, group) * scale_size_, scale_size_);
    return {scale_value(codes.even, w_.scale), scale_value(codes.odd, w_.scale)};
  }
  __device__ ZeroPair zeros(const Segment& s, int buffer, int slot, int group) const {
    if (zero_size_ == 0) return Decoder::zeros(w_.zero, w_.zero);
    const RowPair z = load_pair(zeros_at(buffer) + index(s, slot, group) * zero_size_, zero_size_);
    const uint32_t mask = zero_size_ == 1 ? 0xff : 0xffff;
    return Decoder::zeros(z.even & mask, z.odd & mask);
  }

 private:
  /// Of the scale of the lane's first row, counted from the first of the segment:
  /// [block][row % 8][group][row / 8].
  __device__ int index(const Segment& s, int slot, int group) const {
    const int block =
        kGroups > 1 ? slot : (s.tile + slot) / w_.tiles_per_block - s.tile / w_.tiles_per_block;
    return block * kGroups * kStripRows + (lane_ / 4 * kGroups + group) * 2;
  }
  __device__ uint8_t* buffer_at(int buffer) const {
    return shared_ + buffer * kDepth * kGroups * kStripRows * (scale_size_ + zero_size_);
  }
  __device__ uint8_t* zeros_at(int buffer) const {
    return buffer_at(buffer) + kDepth * kGroups * kStripRows * scale_size_;
  }
  __device__ void copy(uint8_t* to, const uint8_t* from, int64_t block, int blocks,
                       int block_bytes) const {
    const uint8_t* source = from + block * block_bytes;
    for (int at = lane_ * 16; at < blocks * block_bytes; at += kLanes * 16) {
      copy_16_bytes_async(shared_address(to + at), source + at);
    }
  }

  const WeightArguments& w_;
  const int scale_size_;
  const int zero_size_;
  uint8_t* const shared_;
  const int lane_;
};

/// decode() of every decoder, with what it needs besides words.
template <class Decoder>
__device__ __forceinline__ void decode_step(const uint32_t* words, int step, const ZeroPair& zero,
                                            const Table& table, uint32_t (&registers)[4]) {
  if constexpr (Decoder::kHasZeros) {
    Decoder::decode(words, step, zero, registers);
  } else if constexpr (Decoder::kHasTable) {
    Decoder::decode(words, step, table, registers);
  } else {
    Decoder::decode(words, step, registers);
  }
}

/// Bytes of shared memory that fill_table() fills.
template <class Decoder>
__host__ __device__ constexpr int table_bytes() {
  if constexpr (Decoder::kHasTable) return Decoder::kPairs * kLanes * 4;
  return 0;
}

/// By all threads of a block, which then wait for each other.
template <class Decoder>
__device__ Table fill_table(const WeightArguments& weights, uint32_t* shared) {
  const int lane = threadIdx.x % kLanes;
  Table table = {shared_address(shared + lane), 0};
  if constexpr (Decoder::kHasTable) {
    for (int i = threadIdx.x; i < Decoder::kPairs * kLanes; i += blockDim.x) {
      const int index = i / kLanes;
      shared[i] = weights.codebook[Decoder::low_code(index)] |
                  uint32_t{weights.codebook[Decoder::high_code(index)]} << 16;
    }
    if constexpr (Decoder::kPairs == 0) table.value = weights.codebook[lane];
  }
  return table;
}

}  // namespace subbyte::cuda
