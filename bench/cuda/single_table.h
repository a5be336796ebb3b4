#pragma once
// The usual table of 16 entries in shared memory, to compare the decoders with: two loads for a
// pair. 16 entries are in 16 banks and lanes that want the same one share it, so they do not wait
// for each other.

#include "kernels/gpu/decoders.h"

namespace subbyte::bench {

struct SingleTable {
  static constexpr int kBits = 4;
  static constexpr bool kHasZeros = false;
  static constexpr bool kHasTable = true;

  static __device__ __forceinline__ void decode(const uint32_t* words, int step, gpu::Table table,
                                                uint32_t* registers) {
    for (int r = 0; r < 4; ++r) {
      registers[r] = load(table, words[step] >> (8 * r) & 15) |
                     load(table, words[step] >> (8 * r + 4) & 15) << 16;
    }
  }
  static __device__ __forceinline__ uint32_t load(gpu::Table table, uint32_t code) {
    uint32_t d;
    asm("ld.shared.u32 %0, [%1];" : "=r"(d) : "r"(table.shared + table.place + code * 4));
    return d;
  }
};

}  // namespace subbyte::bench
