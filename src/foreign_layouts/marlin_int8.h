#pragma once
// Marlin with 8-bit weights (GPTQ's kU8B128): the tiles of marlin.h, four codes in a word.
//
// Weights, I32 [K/16][N*4], in tiles of 16 inputs and 64 outputs. Each lane has eight words of a
// tile, two for each 16 outputs; word 2j + b holds one column of a B fragment of mma.m16n8k16,
// n0 = 64 nt + 16 j + 8 b + lane/4, for the inputs of k0 = 16 kt + 2 (lane % 4):
//
//   index  ((kt * N/64 + nt) * 32 + lane) * 8 + 2j + b
//   bits   24..31  16..23  8..15  0..7
//   input  k0+9    k0+1    k0+8   k0
//
// so that bytes 0 and 2, which one byte permutation spreads to two halves, are the first register
// of the fragment, and bytes 1 and 3 the second.
//
// Scales are those of marlin.h. Zero points, I32 [G][N/4]: ordered as grouped scales are, then byte
// i of a word is the one of column {0, 2, 1, 3}[i] of four.

#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace subbyte {

/// Where the code of output n and input k lies, in bytes. Shapes are those of check_marlin_shape().
int64_t marlin_int8_place(int64_t n, int64_t k, int64_t rows);

/// Canonical codes [rows][cols] to the words above and back; rows * cols bytes each.
void pack_marlin_int8(std::byte* words, const std::byte* codes, int64_t rows, int64_t cols);
void unpack_marlin_int8(std::byte* codes, const std::byte* words, int64_t rows, int64_t cols);

/// Which output is at byte `column` of a row of zero points.
int64_t marlin_int8_zero_output(int64_t column);

/// Canonical zero points of 8-bit codes, uint16 [rows][groups] of 0 to 255, to I32
/// [groups][rows / 4] and back. Code layout.zero_range: GPTQ version 1 can mean 256.
Status pack_marlin_int8_zeros(std::byte* words, const std::byte* zeros, int64_t rows,
                              int64_t groups);
void unpack_marlin_int8_zeros(std::byte* zeros, const std::byte* words, int64_t rows,
                              int64_t groups);

}  // namespace subbyte
