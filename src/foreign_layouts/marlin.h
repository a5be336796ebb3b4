#pragma once
// Marlin: 4-bit weights in the order in which the threads of a warp feed them to the tensor cores.
//
// Weights, I32 [K/16][N*2], in tiles of 16 inputs and 64 outputs. Word w of a lane holds two
// columns of B fragments of mma.m16n8k16, n0 = 64 nt + 16 w + lane/4 and n0 + 8, for the inputs
// k0 = 16 kt + 2 (lane % 4), k0 + 1, k0 + 8 and k0 + 9:
//
//   index  ((kt * N/64 + nt) * 32 + lane) * 4 + w
//   bits   28..31  24..27  20..23  16..19  12..15   8..11   4..7    0..3
//   input  k0+9    k0+1    k0+9    k0+1    k0+8     k0      k0+8    k0
//   output n0+8    n0+8    n0      n0      n0+8     n0+8    n0      n0
//
// INT4 and FP4 (MXFP4, NVFP4) have the same words.
//
// Scales, [G][N], row after row with the columns of each 64 transposed as 8 x 8:
// s'[8i + j] = s[i + 8j]. With one group (the whole row) the columns of each 32 are instead
// s'[8i + t] = s[2i + {0, 1, 8, 9, 16, 17, 24, 25}[t]].
//
// Zero points, I32 [G][N/8]: ordered as grouped scales are, then nibble i of a word is the one of
// column {0, 2, 4, 6, 1, 3, 5, 7}[i] of eight.
//
// A bias, [N], is ordered as scales with one group are.
//
// FP4 scales, bytes [G][N], G above 1: ordered as grouped scales are, then in each four the middle
// two change places. E8M0 bytes stay what they are. E4M3 bytes become S0E5M3, the upper byte of a
// binary16 shifted left by one, of 2^7 times the scale, from 2^-6 up; what is less becomes 0, as
// the kernel for bf16 would read it 2^112 too small. For bf16 activations all scales are therefore
// multiplied by a power of two first, so that the largest is above 224.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "foreign_layouts/nibble_layout.h"
#include "formats/format.h"

namespace subbyte {

/// Outputs are in 64s, inputs in 16s. Code layout.shape.
Status check_marlin_shape(int64_t rows, int64_t cols);

/// Where the code of output n and input k lies, in bytes of the words above.
NibblePlace marlin_place(int64_t n, int64_t k, int64_t rows);

/// Canonical codes [rows][cols / 2] to the words above and back; rows * cols / 2 bytes each. The
/// shape has been checked, here and below.
void pack_marlin(std::byte* words, const std::byte* codes, int64_t rows, int64_t cols);
void unpack_marlin(std::byte* codes, const std::byte* words, int64_t rows, int64_t cols);

/// Which output is at column `column` of a row of scales.
int64_t marlin_scale_output(int64_t column, bool grouped);
/// The same for nibbles of zero points, and for bytes of FP4 scales.
int64_t marlin_zero_output(int64_t nibble);
int64_t marlin_fp4_scale_output(int64_t column);

/// Canonical scales [rows][groups] of `width` bytes to [groups][rows] in this order and back. One
/// group that is the whole row is ordered in its own way.
void pack_marlin_scales(std::byte* to, const std::byte* scales, int64_t rows, int64_t groups,
                        int width);
void unpack_marlin_scales(std::byte* scales, const std::byte* from, int64_t rows, int64_t groups,
                          int width);

/// A bias, [rows] numbers of `width` bytes, in the order of scales with one group, which is that of
/// the kernel's sums, and back.
void pack_marlin_bias(std::byte* to, const std::byte* bias, int64_t rows, int width);
void unpack_marlin_bias(std::byte* bias, const std::byte* from, int64_t rows, int width);

/// Canonical zero points, bytes [rows][groups] of 0 to 15, to I32 [groups][rows / 8] and back.
/// Code layout.zero_range.
Status pack_marlin_zeros(std::byte* words, const std::byte* zeros, int64_t rows, int64_t groups);
void unpack_marlin_zeros(std::byte* zeros, const std::byte* words, int64_t rows, int64_t groups);

/// Canonical E8M0 scales [rows][groups] to bytes [groups][rows] and back.
void pack_marlin_e8m0(std::byte* to, const std::byte* scales, int64_t rows, int64_t groups);
void unpack_marlin_e8m0(std::byte* scales, const std::byte* from, int64_t rows, int64_t groups);

/// The factor, a power of two, by which E4M3 scales that share one are multiplied for `activations`
/// of f16 (1) or bf16; in any order: experts of a stack share one. Codes: layout.scale_range for
/// negative scales and NaN, layout.format for other types.
Result<float> marlin_e4m3_factor(std::span<const std::byte> scales, Format activations);
/// Canonical E4M3 scales [rows][groups] times that factor to S0E5M3 bytes [groups][rows]. Returns
/// how many scales that were not 0 became 0.
int64_t pack_marlin_e4m3(float factor, std::byte* to, const std::byte* scales, int64_t rows,
                         int64_t groups);

/// Back, where they were multiplied by `factor`. Code layout.scale_range for what is no E4M3 scale.
Status unpack_marlin_e4m3(std::byte* scales, const std::byte* from, int64_t rows, int64_t groups,
                          float factor);

/// The factor of the tensor beside those bytes: times 2^7 for f16, times 2^119 for bf16, over what
/// the scales were multiplied by, in f32.
float marlin_global_scale(float tensor_scale, float factor, Format activations);

}  // namespace subbyte
