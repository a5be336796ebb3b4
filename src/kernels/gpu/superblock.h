#pragma once
// Scales of two levels in the packed form. The numbers of a superblock, 16 outputs x 256 inputs
// (four tiles), follow each other:
//
//   factors   [row % 8][scales, offsets][row / 8] f16
//   integers  [tile of four][row % 8][scales, offsets][group of the tile][row / 8] bytes
//
// without offsets where there are none: so a lane finds those of its two rows side by side. An
// integer i is stored as 128 + i. Beside codes of 2 bits, where integers have 4 bits, a byte has
// that of the scale in its low half and that of the offset in its high half, as they are.
//
// Which numbers there are follows from the element, as ggml's types have them:
//
//   u4, u5 g32      scales and offsets   Q4_K, Q5_K    4.63, 5.63 bits a weight
//   u2 g16          both in halves       Q2_K          2.63
//   i3, i6 g16      scales               Q3_K, Q6_K    3.56, 6.56
//   iq4, nfl4 g32   scales               IQ4_XS, IQ3   4.31
//   nfl3 g32, g16   scales               IQ1, IQ2      3.31, 3.56
//
// Numbers after the last group of a row, or after the last row, are zero: as scales they must not
// be larger than those that are there, or they would be infinite where they are brought near the
// top of f16, and no input of zero would hide that.

#include "kernels/gpu/tile_order.h"

namespace subbyte::gpu {

SUBBYTE_CONSTANT int kSuperblockTiles = 4;

/// Sizes, in bytes.
struct Superblock {
  int groups;  // of a tile
  bool has_offsets;
  bool in_halves;  // of a byte: the integers of a scale and an offset

  SUBBYTE_DEVICE constexpr int lane_factors() const { return has_offsets ? 8 : 4; }
  SUBBYTE_DEVICE constexpr int lane_integers() const {
    return groups * (has_offsets && !in_halves ? 4 : 2);
  }
  SUBBYTE_DEVICE constexpr int factors() const { return 8 * lane_factors(); }
  SUBBYTE_DEVICE constexpr int tile_integers() const { return 8 * lane_integers(); }
  SUBBYTE_DEVICE constexpr int bytes() const {
    return factors() + kSuperblockTiles * tile_integers();
  }
};

/// Superblocks beside codes of `bits`, which are integers or of a codebook.
SUBBYTE_DEVICE constexpr Superblock superblock_of(bool are_integers, int bits, int groups) {
  return {groups, are_integers && (bits == 2 || bits == 4 || bits == 5), are_integers && bits == 2};
}

/// The number that a byte of a superblock belongs to; in halves of bytes a scale and an offset.
struct SuperblockNumber {
  bool is_factor;
  bool is_offset;
  int row;
  int tile;   // of an integer
  int group;  // of that tile
  int byte;   // of a factor
};

SUBBYTE_DEVICE constexpr SuperblockNumber number_at(const Superblock& form, int at) {
  if (at < form.factors()) {
    const int number = at % form.lane_factors() / 2;
    return {true, number / 2 != 0, at / form.lane_factors() + number % 2 * 8, 0, 0, at % 2};
  }
  const int of_integers = at - form.factors();
  const int in_tile = of_integers % form.tile_integers();
  const int number = in_tile % form.lane_integers();
  return {false,
          number >= 2 * form.groups,
          in_tile / form.lane_integers() + number % 2 * 8,
          of_integers / form.tile_integers(),
          number / 2 % form.groups,
          0};
}

/// Where the factor of a row lies, from the begin of the superblock.
SUBBYTE_DEVICE constexpr int factor_at(const Superblock& form, int row, bool is_offset) {
  return row % 8 * form.lane_factors() + (is_offset ? 4 : 0) + row / 8 * 2;
}
/// The byte that has the integer of a group of a row.
SUBBYTE_DEVICE constexpr int integer_at(const Superblock& form, int row, int tile, int group,
                                        bool is_offset) {
  const int first = is_offset && !form.in_halves ? 2 * form.groups : 0;
  return form.factors() + tile * form.tile_integers() + row % 8 * form.lane_integers() + first +
         2 * group + row / 8;
}

/// The same numbers in a canonical matrix: for each row a byte for each group, then an f16 for each
/// 256 inputs.
struct CanonicalNumbers {
  const uint8_t* scales;
  const uint8_t* offsets;  // or nullptr
  int64_t groups;
  int64_t superblocks;
  int scale_bias;  // what an integer is stored as, less its canonical code
  int offset_bias;

  SUBBYTE_DEVICE constexpr int64_t row_bytes() const { return groups + 2 * superblocks; }
};

/// Byte `at` of superblock `superblock` of a strip; `row` of the matrix is that of the byte,
/// negative where there is none.
SUBBYTE_DEVICE constexpr uint8_t superblock_byte(const Superblock& form,
                                                 const CanonicalNumbers& from,
                                                 const SuperblockNumber& number, int64_t row,
                                                 int64_t superblock) {
  const int64_t begin = row * from.row_bytes();
  if (number.is_factor) {
    if (row < 0 || superblock >= from.superblocks) return 0;
    const int64_t at = begin + from.groups + 2 * superblock + number.byte;
    return (number.is_offset ? from.offsets : from.scales)[at];
  }
  const int64_t group = (superblock * kSuperblockTiles + number.tile) * form.groups + number.group;
  if (row < 0 || group >= from.groups) return form.in_halves ? 0 : 128;
  if (form.in_halves) {
    return static_cast<uint8_t>((from.scales[begin + group] & 15) | from.offsets[begin + group]
                                                                        << 4);
  }
  return static_cast<uint8_t>(number.is_offset ? from.offsets[begin + group] + from.offset_bias
                                               : from.scales[begin + group] + from.scale_bias);
}

/// The canonical integer of a byte of a superblock.
SUBBYTE_DEVICE constexpr uint8_t canonical_integer(const Superblock& form, uint8_t stored,
                                                   bool is_offset, int bias) {
  if (form.in_halves) return static_cast<uint8_t>(is_offset ? stored >> 4 : stored & 15);
  return static_cast<uint8_t>(stored - bias);
}

}  // namespace subbyte::gpu
