#pragma once
// Tiles: registers of 16 rows by 64 bytes.
//
//   tiles 0 to 3   sums: 4 tiles of weights by one of activations
//   tiles 4 to 6   weights; tile 7: activations
//
// The instructions are spelled out, because the intrinsics of g++ 12 do not tell the compiler
// which memory they read and write: stores before them were dropped or came too late.

#include "kernels/cpu/avx512bf16/vec.h"

namespace subbyte::cpu::amx {
namespace {

using namespace avx512;
using namespace avx512bf16;

/// Tiles are set up when it begins and given back when it ends: what a thread still holds is saved
/// at every switch.
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

inline void zero_tiles() {
  asm volatile("tilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3" : : :);
}

// What passes by once in a panel, activations and sums, is loaded with a hint (t1) that spares the
// first-level cache for what stays: the panel.

// Tiles of weights at %0 to %3, of activations at %4, 64 in %5. Registers take turns, so that loads
// need not wait for products. `sums_N` is done to sums N before they are added to.
#define SUBBYTE_TILE_STEP(sums_0, sums_1, sums_2, sums_3) \
  "tileloaddt1 (%4,%5,1), %%tmm7\n\t"                     \
  "tileloadd (%0,%5,1), %%tmm4\n\t" sums_0                \
  "tdpbf16ps %%tmm7, %%tmm4, %%tmm0\n\t"                  \
  "tileloadd (%1,%5,1), %%tmm5\n\t" sums_1                \
  "tdpbf16ps %%tmm7, %%tmm5, %%tmm1\n\t"                  \
  "tileloadd (%2,%5,1), %%tmm6\n\t" sums_2                \
  "tdpbf16ps %%tmm7, %%tmm6, %%tmm2\n\t"                  \
  "tileloadd (%3,%5,1), %%tmm4\n\t" sums_3 "tdpbf16ps %%tmm7, %%tmm4, %%tmm3"
#define SUBBYTE_TILE_STEP_INPUTS(weights, tile_stride, x)                           \
  "r"(weights), "r"((weights) + (tile_stride)), "r"((weights) + 2 * (tile_stride)), \
      "r"((weights) + 3 * (tile_stride)), "r"(x), "r"(int64_t{64})

/// sums += four tiles of weights, `tile_stride` bytes apart, by one of activations: 16 by 32 by 16
/// bf16 each.
[[gnu::always_inline]] inline void multiply_step(const uint8_t* weights, int64_t tile_stride,
                                                 const uint8_t* x) {
  asm volatile(SUBBYTE_TILE_STEP("", "", "", "")
               :
               : SUBBYTE_TILE_STEP_INPUTS(weights, tile_stride, x)
               : "memory");
}

/// The same, but before the sums go to `to`, [4][16][16], and become zero.
[[gnu::always_inline]] inline void multiply_step_from_zero(const uint8_t* weights,
                                                           int64_t tile_stride, const uint8_t* x,
                                                           float* to) {
  asm volatile(SUBBYTE_TILE_STEP("tilestored %%tmm0, (%6,%5,1)\n\ttilezero %%tmm0\n\t",
                                 "tilestored %%tmm1, 1024(%6,%5,1)\n\ttilezero %%tmm1\n\t",
                                 "tilestored %%tmm2, 2048(%6,%5,1)\n\ttilezero %%tmm2\n\t",
                                 "tilestored %%tmm3, 3072(%6,%5,1)\n\ttilezero %%tmm3\n\t")
               :
               : SUBBYTE_TILE_STEP_INPUTS(weights, tile_stride, x), "r"(to)
               : "memory");
}

/// The same, but then they are those at `from`.
[[gnu::always_inline]] inline void multiply_step_from(const uint8_t* weights, int64_t tile_stride,
                                                      const uint8_t* x, float* to,
                                                      const float* from) {
  asm volatile(
      SUBBYTE_TILE_STEP("tilestored %%tmm0, (%6,%5,1)\n\ttileloaddt1 (%7,%5,1), %%tmm0\n\t",
                        "tilestored %%tmm1, 1024(%6,%5,1)\n\ttileloaddt1 1024(%7,%5,1), %%tmm1\n\t",
                        "tilestored %%tmm2, 2048(%6,%5,1)\n\ttileloaddt1 2048(%7,%5,1), %%tmm2\n\t",
                        "tilestored %%tmm3, 3072(%6,%5,1)\n\ttileloaddt1 3072(%7,%5,1), %%tmm3\n\t")
      :
      : SUBBYTE_TILE_STEP_INPUTS(weights, tile_stride, x), "r"(to), "r"(from)
      : "memory");
}

#undef SUBBYTE_TILE_STEP_INPUTS
#undef SUBBYTE_TILE_STEP

// Two tiles of weights at %0 and %1 by two of activations at %2 and %3, 64 in %4. Sums are loaded
// without the hint: they have been asked for, and are in the first-level cache.
#define SUBBYTE_TILE_SQUARE(sums_0, sums_1, sums_2, sums_3)                      \
  "tileloaddt1 (%2,%4,1), %%tmm6\n\ttileloadd (%0,%4,1), %%tmm4\n\t" sums_0      \
  "tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n\ttileloaddt1 (%3,%4,1), %%tmm7\n\t" sums_1 \
  "tdpbf16ps %%tmm7, %%tmm4, %%tmm1\n\ttileloadd (%1,%4,1), %%tmm5\n\t" sums_2   \
  "tdpbf16ps %%tmm6, %%tmm5, %%tmm2\n\t" sums_3 "tdpbf16ps %%tmm7, %%tmm5, %%tmm3"
#define SUBBYTE_TILE_SQUARE_INPUTS(weights, tile_stride, x0, x1) \
  "r"(weights), "r"((weights) + (tile_stride)), "r"(x0), "r"(x1), "r"(int64_t{64})

/// sums += two tiles of weights, `tile_stride` bytes apart, by the activations at x0 and x1. Sum
/// 2 i + j is that of weights i and activations j.
[[gnu::always_inline]] inline void multiply_square(const uint8_t* weights, int64_t tile_stride,
                                                   const uint8_t* x0, const uint8_t* x1) {
  asm volatile(SUBBYTE_TILE_SQUARE("", "", "", "")
               :
               : SUBBYTE_TILE_SQUARE_INPUTS(weights, tile_stride, x0, x1)
               : "memory");
}

/// The same, but before the sums go to `to`, [4][16][16], and become zero.
[[gnu::always_inline]] inline void multiply_square_from_zero(const uint8_t* weights,
                                                             int64_t tile_stride, const uint8_t* x0,
                                                             const uint8_t* x1, float* to) {
  asm volatile(SUBBYTE_TILE_SQUARE("tilestored %%tmm0, (%5,%4,1)\n\ttilezero %%tmm0\n\t",
                                   "tilestored %%tmm1, 1024(%5,%4,1)\n\ttilezero %%tmm1\n\t",
                                   "tilestored %%tmm2, 2048(%5,%4,1)\n\ttilezero %%tmm2\n\t",
                                   "tilestored %%tmm3, 3072(%5,%4,1)\n\ttilezero %%tmm3\n\t")
               :
               : SUBBYTE_TILE_SQUARE_INPUTS(weights, tile_stride, x0, x1), "r"(to)
               : "memory");
}

/// The same, but then they are those at `from`.
[[gnu::always_inline]] inline void multiply_square_from(const uint8_t* weights, int64_t tile_stride,
                                                        const uint8_t* x0, const uint8_t* x1,
                                                        float* to, const float* from) {
  asm volatile(
      SUBBYTE_TILE_SQUARE("tilestored %%tmm0, (%5,%4,1)\n\ttileloadd (%6,%4,1), %%tmm0\n\t",
                          "tilestored %%tmm1, 1024(%5,%4,1)\n\ttileloadd 1024(%6,%4,1), %%tmm1\n\t",
                          "tilestored %%tmm2, 2048(%5,%4,1)\n\ttileloadd 2048(%6,%4,1), %%tmm2\n\t",
                          "tilestored %%tmm3, 3072(%5,%4,1)\n\ttileloadd 3072(%6,%4,1), %%tmm3\n\t")
      :
      : SUBBYTE_TILE_SQUARE_INPUTS(weights, tile_stride, x0, x1), "r"(to), "r"(from)
      : "memory");
}

#undef SUBBYTE_TILE_SQUARE_INPUTS
#undef SUBBYTE_TILE_SQUARE

/// The sums to p, [4][16][16], and back.
inline void store_sums(float* p) {
  asm volatile(
      "tilestored %%tmm0, (%0,%1,1)\n\ttilestored %%tmm1, 1024(%0,%1,1)\n\t"
      "tilestored %%tmm2, 2048(%0,%1,1)\n\ttilestored %%tmm3, 3072(%0,%1,1)"
      :
      : "r"(p), "r"(int64_t{64})
      : "memory");
}
inline void load_sums(const float* p) {
  asm volatile(
      "tileloaddt1 (%0,%1,1), %%tmm0\n\ttileloaddt1 1024(%0,%1,1), %%tmm1\n\t"
      "tileloaddt1 2048(%0,%1,1), %%tmm2\n\ttileloaddt1 3072(%0,%1,1), %%tmm3"
      :
      : "r"(p), "r"(int64_t{64})
      : "memory");
}

// Single instructions, for digit_tiles.inl.h and group_tiles.inl.h. The compiler knows nothing of
// tile registers, but keeps the order of these.

/// 16 rows of 64 bytes that follow each other.
template <int kTile, int64_t kOffset = 0>
[[gnu::always_inline]] inline void load_tile(const uint8_t* p) {
  asm volatile("tileloadd %c2(%0,%1,1), %%tmm%c3"
               :
               : "r"(p), "r"(int64_t{64}), "i"(kOffset), "i"(kTile)
               : "memory");
}
template <int kTile, int64_t kOffset = 0>
[[gnu::always_inline]] inline void load_passing_tile(const uint8_t* p) {
  asm volatile("tileloaddt1 %c2(%0,%1,1), %%tmm%c3"
               :
               : "r"(p), "r"(int64_t{64}), "i"(kOffset), "i"(kTile)
               : "memory");
}
template <int kTile>
[[gnu::always_inline]] inline void store_tile(void* p) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)"
               :
               : "r"(p), "r"(int64_t{64}), "i"(kTile)
               : "memory");
}
template <int kTile>
[[gnu::always_inline]] inline void zero_tile() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTile) :);
}
/// sums += weights by inputs, bytes: inputs are signed, weights if kSigned.
template <int kSums, int kWeights, int kInputs, bool kSigned>
[[gnu::always_inline]] inline void add_byte_products() {
  if constexpr (kSigned) {
    asm volatile("tdpbssd %%tmm%c0, %%tmm%c1, %%tmm%c2"
                 :
                 : "i"(kInputs), "i"(kWeights), "i"(kSums)
                 :);
  } else {
    asm volatile("tdpbusd %%tmm%c0, %%tmm%c1, %%tmm%c2"
                 :
                 : "i"(kInputs), "i"(kWeights), "i"(kSums)
                 :);
  }
}
/// The same of bf16.
template <int kSums, int kWeights, int kInputs>
[[gnu::always_inline]] inline void add_pair_products() {
  asm volatile("tdpbf16ps %%tmm%c0, %%tmm%c1, %%tmm%c2"
               :
               : "i"(kInputs), "i"(kWeights), "i"(kSums)
               :);
}

// Tiles of bytes: sums 0 and 1, one for each pack of activations; codes 2 and 3, activations 4 to
// 7, of two steps each.

/// The activations of one block, `pack_stride` bytes apart.
template <int kPacks>
inline void load_digit_inputs(const uint8_t* x, int64_t pack_stride) {
  load_passing_tile<4>(x);
  load_passing_tile<5, 1024>(x);
  if constexpr (kPacks == 2) {
    load_passing_tile<6>(x + pack_stride);
    load_passing_tile<7, 1024>(x + pack_stride);
  }
}

/// The sums to `to`, [pack][16][16].
template <int kPacks>
inline void store_digit_sums(int32_t* to) {
  store_tile<0>(to);
  if constexpr (kPacks == 2) store_tile<1>(to + 256);
}

/// The sums to `to`; then they are two steps of codes by the activations.
template <int kPacks, bool kSigned>
[[gnu::always_inline]] inline void multiply_digits(const uint8_t* codes, int32_t* to) {
  store_tile<0>(to);
  zero_tile<0>();
  load_tile<2>(codes);
  add_byte_products<0, 2, 4, kSigned>();
  load_tile<3, 1024>(codes);
  add_byte_products<0, 3, 5, kSigned>();
  if constexpr (kPacks == 2) {
    store_tile<1>(to + 256);
    zero_tile<1>();
    add_byte_products<1, 2, 6, kSigned>();
    add_byte_products<1, 3, 7, kSigned>();
  }
}

// Tiles of bf16: sums 0 and 1 in turns; weights 2 and 3; activations 4 to 7, one for each step of a
// block.

inline void load_group_inputs(const uint8_t* x) {
  load_passing_tile<4>(x);
  load_passing_tile<5, 1024>(x);
  load_passing_tile<6, 2048>(x);
  load_passing_tile<7, 3072>(x);
}
/// One step of a block of weights, of one term or two, by its activations. Where it begins a sum,
/// what the tile holds goes to `sums`, [sum of the block][16][16], or `before`, those of the block
/// before.
template <int kStep, int kTerms, int kStepsOfSum>
[[gnu::always_inline]] inline void multiply_group_step(const uint8_t* weights, float* before,
                                                       float* sums) {
  constexpr int kCount = 4 / kStepsOfSum;
  static_assert(kCount == 2 || kCount == 4);
  constexpr int kSum = kStep / kStepsOfSum;
  constexpr int kTile = kSum % 2;
  if constexpr (kStep % kStepsOfSum == 0) {
    constexpr int kHeld = kSum - 2;
    store_tile<kTile>(kHeld < 0 ? before + 256 * (kHeld + kCount) : sums + 256 * kHeld);
    zero_tile<kTile>();
  }
  load_tile<2, 1024 * kStep>(weights);
  add_pair_products<kTile, 2, 4 + kStep>();
  if constexpr (kTerms == 2) {
    load_tile<3, 1024 * (4 + kStep)>(weights);
    add_pair_products<kTile, 3, 4 + kStep>();
  }
}
/// A block; what the tiles still hold are its last two sums.
template <int kTerms, int kStepsOfSum>
[[gnu::always_inline]] inline void multiply_groups(const uint8_t* weights, float* before,
                                                   float* sums) {
  multiply_group_step<0, kTerms, kStepsOfSum>(weights, before, sums);
  multiply_group_step<1, kTerms, kStepsOfSum>(weights, before, sums);
  multiply_group_step<2, kTerms, kStepsOfSum>(weights, before, sums);
  multiply_group_step<3, kTerms, kStepsOfSum>(weights, before, sums);
}
template <int kStepsOfSum>
inline void store_group_sums(float* sums) {
  constexpr int kCount = 4 / kStepsOfSum;
  store_tile<0>(sums + 256 * (kCount - 2));
  store_tile<1>(sums + 256 * (kCount - 1));
}

}  // namespace
}  // namespace subbyte::cpu::amx
