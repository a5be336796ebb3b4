#pragma once
// Tiles: eight registers of 16 rows by 64 bytes, and the instructions on them.
//
//                  16 rows of activations
//                 +--------+
//    16 lanes of  |   B    |        C += A * B. Each lane of four bytes of B, two bf16 or four
//    4 bytes      +--------+        bytes of one activation row, meets the same lane of a row of A.
//        +------+ +--------+
//   rows |  A   | |   C    |        Weights are A, so that none is ever transposed: what one vector
//        +------+ +--------+        of codes decodes to is a row of it. Outputs are rows of C.
//
// The instructions are spelled out, because the intrinsics of g++ 12 do not tell the compiler
// which memory they read and write: stores before them were dropped or came too late. The compiler
// knows nothing of tile registers, but keeps the order of these.

#include "kernels/cpu/avx512bf16/vec.h"

namespace subbyte::cpu::amx {
namespace {

using namespace avx512;
using namespace avx512bf16;

constexpr int64_t kTileRows = 16;
constexpr int64_t kTmmBytes = 1024;

/// Tiles are set up when it begins and given back when it ends: what a thread still has in them is
/// saved at every switch.
class TileSession {
 public:
  TileSession() {
    struct {
      uint8_t palette = 1;
      uint8_t start_row = 0;
      uint8_t reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } config;
    static_assert(sizeof(config) == 64);
    asm volatile("ldtilecfg %0" : : "m"(config) : "memory");
  }
  TileSession(const TileSession&) = delete;
  TileSession& operator=(const TileSession&) = delete;
  ~TileSession() { asm volatile("tilerelease" : : : "memory"); }
};

/// 16 rows of 64 bytes that follow each other.
template <int kTile, int64_t kOffset = 0>
[[gnu::always_inline]] inline void load_tile(const void* p) {
  asm volatile("tileloadd %c2(%0,%1,1), %%tmm%c3"
               :
               : "r"(p), "r"(int64_t{64}), "i"(kOffset), "i"(kTile)
               : "memory");
}
/// The same of what passes by once, activations: the hint spares the first-level cache for what
/// stays there.
template <int kTile, int64_t kOffset = 0>
[[gnu::always_inline]] inline void load_tile_t1(const void* p) {
  asm volatile("tileloaddt1 %c2(%0,%1,1), %%tmm%c3"
               :
               : "r"(p), "r"(int64_t{64}), "i"(kOffset), "i"(kTile)
               : "memory");
}
template <int kTile, int64_t kOffset = 0>
[[gnu::always_inline]] inline void store_tile(void* p) {
  asm volatile("tilestored %%tmm%c3, %c2(%0,%1,1)"
               :
               : "r"(p), "r"(int64_t{64}), "i"(kOffset), "i"(kTile)
               : "memory");
}
template <int kTile>
[[gnu::always_inline]] inline void zero_tile() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTile) :);
}

/// C += A * B of bf16.
template <int kC, int kA, int kB>
[[gnu::always_inline]] inline void add_bf16_products() {
  asm volatile("tdpbf16ps %%tmm%c0, %%tmm%c1, %%tmm%c2" : : "i"(kB), "i"(kA), "i"(kC) :);
}
/// The same of bytes: those of B are signed, those of A if kSigned.
template <int kC, int kA, int kB, bool kSigned>
[[gnu::always_inline]] inline void add_byte_products() {
  if constexpr (kSigned) {
    asm volatile("tdpbssd %%tmm%c0, %%tmm%c1, %%tmm%c2" : : "i"(kB), "i"(kA), "i"(kC) :);
  } else {
    asm volatile("tdpbusd %%tmm%c0, %%tmm%c1, %%tmm%c2" : : "i"(kB), "i"(kA), "i"(kC) :);
  }
}

// Four accumulators, tiles 0 to 3.

inline void zero_tiles() {
  zero_tile<0>();
  zero_tile<1>();
  zero_tile<2>();
  zero_tile<3>();
}
/// To p, [4][16][16], and back.
inline void store_accumulators(float* p) {
  store_tile<0>(p);
  store_tile<1, kTmmBytes>(p);
  store_tile<2, 2 * kTmmBytes>(p);
  store_tile<3, 3 * kTmmBytes>(p);
}
inline void load_accumulators(const float* p) {
  load_tile_t1<0>(p);
  load_tile_t1<1, kTmmBytes>(p);
  load_tile_t1<2, 2 * kTmmBytes>(p);
  load_tile_t1<3, 3 * kTmmBytes>(p);
}

/// Contents that the accumulators begin with.
enum class Begin : uint8_t { kAsTheyAre, kZero, kLoaded };

/// Just before the first product of accumulator kC: what it has goes to `to`, [4][16][16], and what
/// it begins with comes from `from`. So neither waits for the products of the others.
template <int kC, Begin kBegin, bool kStores>
[[gnu::always_inline]] inline void begin_accumulator(float* to, const float* from) {
  if constexpr (kStores) store_tile<kC, kC * kTmmBytes>(to);
  if constexpr (kBegin == Begin::kZero) zero_tile<kC>();
  if constexpr (kBegin == Begin::kLoaded) load_tile<kC, kC * kTmmBytes>(from);
}

/// One step, 32 inputs: the accumulators += kWeightTiles tiles of weights by 4 / kWeightTiles of
/// activations, C[i][j] = A[i] * B[j]. Tiles lie weight_stride and x_stride bytes apart. Registers
/// take turns, so that loads need not wait for products.
template <int kWeightTiles, Begin kBegin = Begin::kAsTheyAre, bool kStores = false>
[[gnu::always_inline]] inline void multiply_step(const uint8_t* weights, int64_t weight_stride,
                                                 const uint8_t* x, int64_t x_stride,
                                                 float* to = nullptr, const float* from = nullptr) {
  static_assert(kWeightTiles == 2 || kWeightTiles == 4);
  if constexpr (kWeightTiles == 2) {
    load_tile_t1<6>(x);
    load_tile<4>(weights);
    begin_accumulator<0, kBegin, kStores>(to, from);
    add_bf16_products<0, 4, 6>();
    load_tile_t1<7>(x + x_stride);
    begin_accumulator<1, kBegin, kStores>(to, from);
    add_bf16_products<1, 4, 7>();
    load_tile<5>(weights + weight_stride);
    begin_accumulator<2, kBegin, kStores>(to, from);
    add_bf16_products<2, 5, 6>();
    begin_accumulator<3, kBegin, kStores>(to, from);
    add_bf16_products<3, 5, 7>();
  } else {
    load_tile_t1<7>(x);
    load_tile<4>(weights);
    begin_accumulator<0, kBegin, kStores>(to, from);
    add_bf16_products<0, 4, 7>();
    load_tile<5>(weights + weight_stride);
    begin_accumulator<1, kBegin, kStores>(to, from);
    add_bf16_products<1, 5, 7>();
    load_tile<6>(weights + 2 * weight_stride);
    begin_accumulator<2, kBegin, kStores>(to, from);
    add_bf16_products<2, 6, 7>();
    load_tile<4>(weights + 3 * weight_stride);
    begin_accumulator<3, kBegin, kStores>(to, from);
    add_bf16_products<3, 4, 7>();
  }
}

}  // namespace
}  // namespace subbyte::cpu::amx
