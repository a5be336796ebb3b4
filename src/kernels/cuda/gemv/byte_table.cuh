#pragma once
// Codebooks of 2, 4 and 5 bits and vectors in gemv, for one token: what a byte of codes stands for,
// two or four weights, lies in shared memory, once for each lane (or for lane and lane + 16, which
// read at different times), so that no lane waits for another. Rows of the table are 256 bytes
// apart: one byte permutation makes an address of a byte of codes and of the lane's place.
//
//   bits  row of an index   instructions for two weights
//   2     [lane % 16][8]    1    a permutation and a load for four; a step of each tile comes from
//                                registers, as loads of all take longer than all else
//   4     [lane][4]         2    a permutation and a load for two
//   5     [lane % 16][4]    3.25 a shift, an and_or and a load, for which two lanes may wait; by
//                                shuffles it is 5.00, and two of those are as long as such a load
//
// Of 5 bits an index is a pair, 10 bits, and rows are 64 bytes apart, so all tables are as large.

#include <cstdint>

#include "kernels/cuda/common/arguments.h"
#include "kernels/cuda/common/prologue_epilogue.cuh"
#include "kernels/cuda/common/ptx.cuh"
#include "kernels/cuda/gemv/partition.h"
#include "kernels/gpu/decoders.h"

namespace subbyte::cuda {

template <class Decoder>
inline constexpr bool kHasByteTable = false;
template <class Number, int kBits>
inline constexpr bool kHasByteTable<Codebook<Number, kBits>> = kBits != 3;
template <class Decoder>
inline constexpr bool kHasByteTable<InSuperblocks<Decoder>> = kHasByteTable<Decoder>;
template <class Number, int kBits>
inline constexpr bool kHasByteTable<Vectors<Number, kBits>> = true;

/// What has pairs for an index instead, of which half of the lanes have one copy.
template <class Decoder>
inline constexpr bool kHasPairTable = false;
template <class Number>
inline constexpr bool kHasPairTable<Codebook<Number, 5>> = true;

template <class Decoder>
class ByteTable {
 public:
  ByteTable() = default;
  /// `shared` of the whole table.
  __device__ ByteTable(const void* shared, int lane)
      : shared_(shared_address(shared)),
        place_(kBits == 2   ? lane % 16 * 8
               : kBits == 5 ? lane % 16 * 4
                            : lane * 4) {}

  /// The values of 2 bits, for permute().
  __device__ void hold_values(const WeightArguments& weights) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      low_bytes_ |= (weights.codebook[i] & 0xFFu) << 8 * i;
      high_bytes_ |= (weights.codebook[i] >> 8u) << 8 * i;
    }
  }

  /// Writes the table, by all threads of a CTA, which must synchronize before they use it.
  static __device__ void fill(const WeightArguments& weights, uint8_t* shared) {
    const int lane = threadIdx.x % kLanes;
    if constexpr (kBits == 5) {
      for (int index = threadIdx.x; index < 1024; index += blockDim.x) {
        const uint32_t pair = pair_of(weights, index & 31, index >> 5);
        auto* const to = reinterpret_cast<uint4*>(shared + (index << kPairTableRowBits));
#pragma unroll
        for (int i = 0; i < 4; ++i) to[(i + lane / 2) % 4] = {pair, pair, pair, pair};
      }
      return;
    }
    for (int byte = threadIdx.x; byte < 256; byte += blockDim.x) {
      const uint2 words = words_of(weights, byte);
      auto* const to = reinterpret_cast<uint32_t*>(shared + byte * kByteTableRow);
#pragma unroll 4
      for (int i = 0; i < kLanes; ++i) {
        const int place = (i + lane) % kLanes;  // all lanes in banks of their own
        to[place] = kBits == 4 || place % 2 == 0 ? words.x : words.y;
      }
    }
  }

  /// Says whether permute() has the registers of a step, not decode().
  static __host__ __device__ constexpr bool permutes(int step) {
    return kBits == 2 && !HasVectors<Decoder> && step == kSteps - 1;
  }

  /// Of registers 0 and 1 (2 and 3) each has the first (second) weights of two of decode()'s, which
  /// are of the same row, so operand B has its inputs in that order.
  __device__ __forceinline__ void permute(const uint32_t* words, int step,
                                          uint32_t* registers) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      // Codes in four bits each, of which a permutation reads the lower 16.
      const uint32_t codes = (words[step / 2] >> 2 * i & 0x33333333) >> 16 * (step % 2);
      const uint32_t low = __byte_perm(low_bytes_, 0, codes);
      const uint32_t high = __byte_perm(high_bytes_, 0, codes);
      registers[2 * i] = __byte_perm(low, high, 0x6240);
      registers[2 * i + 1] = __byte_perm(low, high, 0x7351);
    }
  }

  /// The four registers of a step.
  __device__ __forceinline__ void decode(const uint32_t* words, int step,
                                         uint32_t* registers) const {
    if constexpr (kBits == 2) {
#pragma unroll
      for (int r = 0; r < 4; r += 2) {
        uint32_t both[2];
        ld_table<2>(both, row(words[step / 2], 2 * (step % 2) + r / 2));
        // A byte is a pair of each row, or four inputs of one.
        registers[HasVectors<Decoder> ? r / 2 : r] = both[0];
        registers[HasVectors<Decoder> ? r / 2 + 2 : r + 1] = both[1];
      }
    } else if constexpr (kBits == 5) {
#pragma unroll
      for (int r = 0; r < 4; ++r) ld_table<1>(registers + r, row_of_pair(words, 4 * step + r));
    } else {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        ld_table<1>(registers + r, row(words[step], r));
      }
    }
  }

 private:
  static constexpr int kBits = Decoder::kBits;

  static __device__ __forceinline__ uint2 words_of(const WeightArguments& weights, int byte) {
    if constexpr (HasVectors<Decoder>) {
      return vector_of<Decoder>(weights, byte);
    } else {
      if (kBits == 4) return {pair_of(weights, byte & 15, byte >> 4), 0};
      return {pair_of(weights, byte & 3, byte >> 2 & 3),
              pair_of(weights, byte >> 4 & 3, byte >> 6)};
    }
  }
  static __device__ __forceinline__ uint32_t pair_of(const WeightArguments& weights, int low,
                                                     int high) {
    return weights.codebook[low] | uint32_t{weights.codebook[high]} << 16;
  }

  /// The table does not change while it is read, so that loads may move.
  template <int kWords>
  static __device__ __forceinline__ void ld_table(uint32_t* to, uint32_t from) {
    if constexpr (kWords == 2) {
      asm("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "r"(from));
    } else {
      asm("ld.shared.u32 %0, [%1];" : "=r"(to[0]) : "r"(from));
    }
  }

  /// Of byte `i` of a word of codes.
  __device__ __forceinline__ uint32_t row(uint32_t word, int i) const {
    return shared_ + __byte_perm(word, place_, 0x5504 | i << 4);
  }

  /// Of pair `field` of a tile of 5 bits.
  __device__ __forceinline__ uint32_t row_of_pair(const uint32_t* words, int field) const {
    constexpr int kRowBits = kPairTableRowBits;
    if (field == 15) return shared_ + (Decoder::last_field(words) << kRowBits | place_);
    const int shift = 10 * (field % 3) - kRowBits;
    const uint32_t word = words[field / 3];
    return shared_ + and_or(shift < 0 ? word << -shift : word >> shift, 0x3FFu << kRowBits, place_);
  }

  uint32_t shared_;
  uint32_t place_;
  uint32_t low_bytes_ = 0;  // of four values
  uint32_t high_bytes_ = 0;
};

/// What decode_raw() of other tables is.
template <class Decoder>
__device__ __forceinline__ void decode_raw(const uint32_t* words, int step,
                                           const ByteTable<Decoder>& table, uint32_t* registers) {
  table.decode(words, step, registers);
}

}  // namespace subbyte::cuda
