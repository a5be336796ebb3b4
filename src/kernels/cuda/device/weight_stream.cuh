#pragma once
// One warp's way through its weights, all of which are copied to shared memory asynchronously:
// codes kDepth tiles ahead of their use, scales and zero points a segment (kDepth tiles) ahead.
// Nothing else of a kernel depends on the format.
//
// Copies are waited for in the order in which they were begun, by number. (Loads to registers would
// share the few scoreboards of a warp, so that waiting for the oldest is waiting for all.) The
// order of the groups of copies is
//
//   scales of segment 0 | tile 0 | tile 1 | ... | scales of segment 1 | tile 0 | ...
//
// and a kernel that uses tile i has begun all up to tile i - 1 of the next segment. A lane copies
// what it reads itself, so codes need no barrier.

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

/// Two neighbours of kBytes (1, 2 or 4) bytes in shared memory: of rows g and g + 8.
struct CodePair {
  uint32_t even;
  uint32_t odd;
};

template <int kBytes>
__device__ __forceinline__ CodePair load_pair(const uint8_t* p) {
  if constexpr (kBytes == 1) {
    const uint32_t both = *reinterpret_cast<const uint16_t*>(p);
    return {both & 0xff, both >> 8};
  }
  if constexpr (kBytes == 2) {
    const uint32_t both = *reinterpret_cast<const uint32_t*>(p);
    return {both & 0xffff, both >> 16};
  }
  if constexpr (kBytes == 4) {
    const uint2 both = *reinterpret_cast<const uint2*>(p);
    return {both.x, both.y};
  }
}

__device__ __forceinline__ float scale_value(uint32_t code, const ScaleRule& rule) {
  const uint32_t magnitude = code & rule.magnitude;
  const uint32_t bits = magnitude << rule.shift | (code & rule.sign) << rule.sign_shift;
  const float value = magnitude == 0 ? rule.zero : __uint_as_float(bits) * rule.factor;
  return magnitude >= rule.special ? __uint_as_float(0x7fc00000u) : value;
}

/// Values of all codes of a one-byte scale, by all threads of a block, which then wait for each
/// other.
__device__ __forceinline__ void fill_scale_values(float* values, const ScaleRule& rule) {
  if (rule.bytes != 1) return;
  for (int i = threadIdx.x; i < 256; i += blockDim.x) values[i] = scale_value(i, rule);
}

template <int kWords>
__device__ __forceinline__ void read_shared(uint32_t* to, uint32_t address) {
  if constexpr (kWords == 4) {
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
  } else if constexpr (kWords == 2) {
    asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];"
                 : "=r"(to[0]), "=r"(to[1])
                 : "r"(address)
                 : "memory");
  } else if constexpr (kWords == 8) {
    read_shared<4>(to, address);
    read_shared<4>(to + 4, address + 16);
  } else {
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(to[0]) : "r"(address) : "memory");
  }
}
__device__ __forceinline__ void write_shared(uint32_t address, uint32_t value) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
__device__ __forceinline__ uint32_t read_shared_u16(uint32_t address) {
  uint16_t value;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(value) : "r"(address) : "memory");
  return value;
}

/// Scales of two rows, and their zero points as the decoder wants them, if it has any.
template <bool kHasZeros>
struct alignas(16) PreparedScales {
  float2 scales;
  uint2 zeros;
};
template <>
struct alignas(8) PreparedScales<false> {
  float2 scales;
};

/// kGroups: groups of a tile (1, 2 or 4); with 1 a group may also be several tiles.
template <class Decoder, int kGroups, int kTilesAhead>
class WeightStream {
 public:
  static constexpr int kWords = Decoder::kBits;
  static constexpr int kDepth = kTilesAhead;
  static constexpr int kFirst = first_piece(kWords);
  static constexpr int kSecond = second_piece(kWords);
  static constexpr int kBlock = kGroups * kStripRows;  // scales of a block
  static constexpr int kValues = kDepth * kBlock;      // of a segment, at most
  using Prepared = PreparedScales<Decoder::kHasZeros>;

  /// `scale_values` of fill_scale_values(); `shared` has stream_bytes().
  __device__ WeightStream(const WeightArguments& weights, const float* scale_values,
                          uint8_t* shared, int lane)
      : w_(weights),
        scale_values_(scale_values),
        scale_size_(weights.scale.bytes),
        zero_size_(Decoder::kHasZeros && weights.zeros != nullptr ? weights.zero_bytes : 0),
        ready_(reinterpret_cast<Prepared*>(shared + kDepth * tile_bytes(kWords))),
        shared_(shared + kDepth * tile_bytes(kWords) + kValues / 2 * sizeof(Prepared)),
        ring_(shared_address(shared) + lane * kFirst * 4),
        lane_(lane) {
    constant_zero_ = make_zeros(weights.zero, weights.zero);
  }

  /// Starts the copies of a segment's scales and zero points into buffer `buffer` (0 or 1).
  __device__ void load_scales(const Segment& s, int buffer) {
    if (s.count > 0) {
      const int begin = block_of(s.tile);
      const int blocks = block_of(s.tile + s.count - 1) + 1 - begin;
      const uint32_t first = (static_cast<uint32_t>(s.strip) * w_.blocks + begin) * kBlock;
      const uint32_t size = blocks * kBlock;
      copy(raw(buffer), w_.scales + uint64_t{first} * scale_size_, size * scale_size_);
      if (zero_size_ != 0) {
        copy(raw_zeros(buffer), w_.zeros + uint64_t{first} * zero_size_, size * zero_size_);
      }
    }
    commit_copies();
  }

  /// What buffer `buffer` has got becomes floats and constants of the decoder, for each tile its
  /// own. The lanes must have waited for the copies, and afterwards wait for each other.
  __device__ void prepare_scales(const Segment& s, int buffer) {
    if (scale_size_ == 1) return prepare<1>(s, buffer);
    if (scale_size_ == 2) return prepare<2>(s, buffer);
    prepare<4>(s, buffer);
  }

  /// Groups of copies that may be under way when the scales of a segment are needed, those of the
  /// next having been begun; and when a tile is needed, or two together.
  static constexpr int kPendingAtScales = kDepth + 1;
  static constexpr int kPendingAtTile = kDepth;
  static constexpr int kPendingAtTwoTiles = kDepth - 1;

  /// This lane's words of the first tile of a segment; the next tiles follow.
  __device__ const uint8_t* codes_of(const Segment& s) const {
    const uint32_t tile = static_cast<uint32_t>(s.strip) * w_.tiles + s.tile;
    return w_.codes + uint64_t{tile} * tile_bytes(kWords) + lane_ * kFirst * 4;
  }

  /// Starts the copy of tile `slot` of the segment at `codes`, if `there`.
  __device__ void load_codes(const uint8_t* codes, int slot, bool there) {
    if (there) {
      const uint8_t* from = codes + slot * tile_bytes(kWords);
      copy_async<kFirst * 4>(ring_ + slot * tile_bytes(kWords), from);
      if constexpr (kSecond > 0) {
        constexpr int kToSecond = kLanes * kFirst * 4;
        const int step = lane_ * (kSecond - kFirst) * 4;
        copy_async<kSecond * 4>(ring_ + slot * tile_bytes(kWords) + kToSecond + step,
                                from + kToSecond + step);
      }
    }
    commit_copies();
  }

  /// The words of tile `slot`, which must have been waited for.
  __device__ void read_codes(int slot, uint32_t (&words)[kWords]) const {
    const uint32_t at = ring_ + slot * tile_bytes(kWords);
    read_shared<kFirst>(words, at);
    if constexpr (kSecond > 0) {
      read_shared<kSecond>(words + kFirst,
                           at + kLanes * kFirst * 4 + lane_ * (kSecond - kFirst) * 4);
    }
  }

  /// Scales and zero points of rows lane / 4 and lane / 4 + 8 in a group of tile `slot` of the
  /// segment.
  __device__ Prepared prepared(int slot, int group) const {
    return ready_[slot * (kBlock / 2) + lane_ / 4 * kGroups + group];
  }

 private:
  __device__ int block_of(int tile) const {
    if (kGroups > 1 || w_.blocks_per_tile == 0) return tile;
    return static_cast<int>(__umulhi(tile, w_.blocks_per_tile));
  }
  /// [2][values] scales, [2][values] zero points: stream_bytes() has the sizes.
  __device__ uint8_t* raw(int buffer) const { return shared_ + buffer * kValues * scale_size_; }
  __device__ uint8_t* raw_zeros(int buffer) const { return raw(2) + buffer * kValues * zero_size_; }
  template <int kScaleBytes>
  __device__ float scale_of(uint32_t code) const {
    if constexpr (kScaleBytes == 1) return scale_values_[code];
    if constexpr (kScaleBytes == 2) {
      const uint16_t bits = static_cast<uint16_t>(code);
      return w_.scale.shift == 16 ? BF16::to_float(bits) : F16::to_float(bits);
    }
    return __uint_as_float(code);
  }

  template <int kScaleBytes>
  __device__ void prepare(const Segment& s, int buffer) {
    const int first = block_of(s.tile);
    const int pairs = s.count * (kBlock / 2);
    const uint8_t* const scales = shared_ + buffer * kValues * kScaleBytes;
    const uint8_t* const zeros =
        shared_ + 2 * kValues * kScaleBytes + buffer * kValues * zero_size_;
#pragma unroll
    for (int j = 0; j < kValues / 2 / kLanes; ++j) {
      const int i = lane_ + j * kLanes;  // pair: [slot][row % 8][group]
      if (i >= pairs) break;
      const int block =
          kGroups > 1 ? i / (kBlock / 2) : block_of(s.tile + i / (kBlock / 2)) - first;
      const int from = (block * (kBlock / 2) + i % (kBlock / 2)) * 2;
      const CodePair code = load_pair<kScaleBytes>(scales + from * kScaleBytes);
      Prepared prepared;
      prepared.scales = {scale_of<kScaleBytes>(code.even), scale_of<kScaleBytes>(code.odd)};
      if constexpr (Decoder::kHasZeros) {
        ZeroPair zero = constant_zero_;
        if (zero_size_ == 1) {
          const CodePair z = load_pair<1>(zeros + from);
          zero = Decoder::zeros(z.even, z.odd);
        } else if (zero_size_ == 2) {
          const CodePair z = load_pair<2>(zeros + from * 2);
          zero = Decoder::zeros(z.even, z.odd);
        }
        prepared.zeros = {zero.even, zero.odd};
      }
      ready_[i] = prepared;
    }
  }

  static __device__ ZeroPair make_zeros(uint32_t even, uint32_t odd) {
    if constexpr (Decoder::kHasZeros) return Decoder::zeros(even, odd);
    return {};
  }
  __device__ void copy(uint8_t* to, const uint8_t* from, int bytes) const {
#pragma unroll
    for (int j = 0; j < (kValues * 4 + kLanes * 16 - 1) / (kLanes * 16); ++j) {
      const int at = (j * kLanes + lane_) * 16;
      if (at < bytes) copy_async<16>(shared_address(to + at), from + at);
    }
  }

  const WeightArguments& w_;
  const float* const scale_values_;
  const int scale_size_;
  const int zero_size_;
  Prepared* const ready_;  // [slot][row % 8][group]
  uint8_t* const shared_;  // of the scales as they are in memory
  const uint32_t ring_;    // of the codes: address of this lane's words of tile 0
  const int lane_;
  ZeroPair constant_zero_;
};

/// decode() of every decoder, with what it needs besides words.
template <class Decoder>
__device__ __forceinline__ void decode_step(const uint32_t* words, int step,
                                            const PreparedScales<Decoder::kHasZeros>& prepared,
                                            const Table& table, uint32_t (&registers)[4]) {
  if constexpr (Decoder::kHasZeros) {
    Decoder::decode(words, step, {prepared.zeros.x, prepared.zeros.y}, registers);
  } else if constexpr (Decoder::kHasTable) {
    Decoder::decode(words, step, table, registers);
  } else {
    Decoder::decode(words, step, registers);
  }
}

/// decode_raw() of integers, decode() of all others.
template <class Decoder>
__device__ __forceinline__ void decode_raw(const uint32_t* words, int step, const Table& table,
                                           uint32_t (&registers)[4]) {
  if constexpr (Decoder::kHasZeros) {
    Decoder::decode_raw(words, step, registers);
  } else if constexpr (Decoder::kHasTable) {
    Decoder::decode(words, step, table, registers);
  } else {
    Decoder::decode(words, step, registers);
  }
}

template <class Decoder>
__device__ constexpr float raw_unit() {
  if constexpr (Decoder::kHasZeros) return Decoder::kRawUnit;
  return 1;
}

template <class Decoder>
__device__ constexpr float raw_odd() {
  if constexpr (Decoder::kHasZeros) return Decoder::kRawOdd;
  return 1;
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
