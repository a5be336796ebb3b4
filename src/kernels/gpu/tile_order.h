#pragma once
// Where the code of a weight lies in the packed form that the GPU kernels read, and what else the
// host and all GPUs agree on: orders of rows, kinds of scales.
//
// A tensor core instruction takes 16 outputs x 16 inputs of weights, eight of them from each lane
// of a warp (g = lane / 4, t = lane % 4), two in each of four registers:
//
//            input  2t  2t+1     2t+8  2t+9
//   output g      r0.lo r0.hi   r2.lo r2.hi        m16n8k16, and a warp's part of wgmma m64nNk16,
//   output g + 8  r1.lo r1.hi   r3.lo r3.hi        which is the same: one packed form serves both
//
// A tile is 16 outputs x 64 inputs: four such steps, 32 codes of b bits for each lane, which are b
// words of 32 bits. Tiles of the same 16 outputs (a strip) follow each other:
//
//   codes: [strip][tile][piece][lane][words of the piece]
//
// A piece is what one load instruction of a lane brings: 4, 2 or 1 words. 16 bits are four pieces
// of 4 words, 8 bits two, 6 bits are 4 + 2, 5 bits 4 + 1, 3 bits 2 + 1, else there is one piece.
//
// Inside the words there are two orders, both so that few instructions bring two codes into the
// two halves of a register (h = 0: low, 1: high):
//
//   kHalves   code (step, r, h) of a plane of p bits lies in half h of its word: for arithmetic
//             p = 4: word step, bit 16h + 4r      p = 2: word step / 2, bit 16h + 8 (step % 2) + 2r
//             p = 1: bit 16h + 4 step + r         8 bits: word 2 step + r / 2, byte 2 (r % 2) + h
//             16 bits: word 4 step + r, half h, which is the register
//   kPairs    codes (step, r, 0) and (step, r, 1) are neighbours: for tables of pairs
//             4 bits: word step, bit 8r + 4h
//             2 bits: word step / 2, bit 16 (step % 2) + 4r + 2h
//             3 and 5 bits: fields of 2 b bits, in the order of 4 step + r, 5 or 3 in bits 0 to 29
//             of each word; the 16th, whose bits do not fit, has bits 30 and 31 of all words
//   kFours    2 bits: those of four inputs of a row are a byte, word step / 2, bit 16 (step % 2) +
//             8 (r % 2) + 4 (r / 2) + 2h. Inputs have another order inside of a step, so that a
//             lane has four neighbours of each row: 4t and 4t + 1 in r0 and r1, the next in r2, r3
//
// Of kHalves 3 bits are a plane of the two low bits and one of the high bit, 5 bits planes of 4 and
// 1, 6 bits of 4 and 2, each at the place of codes of p bits.
// What a matrix lacks to full strips and tiles is zero.

#include "kernels/gpu/dialect.h"

namespace subbyte::gpu {

SUBBYTE_CONSTANT int kStripRows = 16;
SUBBYTE_CONSTANT int kTileCols = 64;
SUBBYTE_CONSTANT int kStepCols = 16;
SUBBYTE_CONSTANT int kSteps = kTileCols / kStepCols;
SUBBYTE_CONSTANT int kLanes = 32;

enum class CodeOrder : uint8_t { kHalves, kPairs, kFours };

/// A bit of the packed tile, of a lane.
struct BitPlace {
  int word;
  int bit;
};

/// Place of one weight in its tile. row < 16, col < 64.
struct Slot {
  int lane;
  int step;
  int reg;
  int high;  // half of the register
};

SUBBYTE_DEVICE constexpr Slot slot_of(int row, int col) {
  const int k = col % kStepCols;
  return {(row % 8) * 4 + k % 8 / 2, col / kStepCols, row / 8 + k / 8 * 2, k % 2};
}

SUBBYTE_DEVICE constexpr int row_of(Slot slot) {
  return slot.lane / 4 + slot.reg % 2 * 8;
}

SUBBYTE_DEVICE constexpr int col_of(Slot slot) {
  return slot.step * kStepCols + slot.lane % 4 * 2 + slot.high + slot.reg / 2 * 8;
}

/// The same where inputs have the order of kFours.
SUBBYTE_DEVICE constexpr int col_of(Slot slot, CodeOrder order) {
  if (order != CodeOrder::kFours) return col_of(slot);
  return slot.step * kStepCols + slot.lane % 4 * 4 + slot.reg / 2 * 2 + slot.high;
}
SUBBYTE_DEVICE constexpr Slot slot_of(int row, int col, CodeOrder order) {
  if (order != CodeOrder::kFours) return slot_of(row, col);
  const int k = col % kStepCols;
  return {row % 8 * 4 + k / 4, col / kStepCols, row / 8 + k % 4 / 2 * 2, k % 2};
}

namespace internal {

SUBBYTE_DEVICE constexpr BitPlace place_in_plane(Slot s, int bits, CodeOrder order) {
  const bool halves = order == CodeOrder::kHalves;
  switch (bits) {
    case 16:
      return {4 * s.step + s.reg, 16 * s.high};
    case 8:
      return {2 * s.step + s.reg / 2, 8 * (2 * (s.reg % 2) + s.high)};
    case 4:
      return {s.step, halves ? 16 * s.high + 4 * s.reg : 8 * s.reg + 4 * s.high};
    case 2:
      if (order == CodeOrder::kFours) {
        return {s.step / 2, 16 * (s.step % 2) + 8 * (s.reg % 2) + 4 * (s.reg / 2) + 2 * s.high};
      }
      return {s.step / 2, halves ? 16 * s.high + 8 * (s.step % 2) + 2 * s.reg
                                 : 16 * (s.step % 2) + 4 * s.reg + 2 * s.high};
    default:
      return {0, 16 * s.high + 4 * s.step + s.reg};
  }
}

/// 3 and 5 bits of kPairs.
SUBBYTE_DEVICE constexpr BitPlace place_in_fields(Slot s, int bit, int bits) {
  const int of_word = 32 / (2 * bits);
  const int field = 4 * s.step + s.reg;
  const int in_field = s.high * bits + bit;
  if (field == 15) return {in_field / 2, 30 + in_field % 2};
  return {field / of_word, 2 * bits * (field % of_word) + in_field};
}

}  // namespace internal

/// Bits of the first plane of kHalves.
SUBBYTE_DEVICE constexpr int low_plane(int bits) {
  return bits == 3 ? 2 : bits == 5 || bits == 6 ? 4 : bits;
}

/// Place of bit `bit` of a code of `bits` (2, 3, 4, 5, 6, 8 or 16) in its lane's words.
SUBBYTE_DEVICE constexpr BitPlace bit_place(Slot slot, int bit, int bits, CodeOrder order) {
  if (order == CodeOrder::kPairs && (bits == 3 || bits == 5)) {
    return internal::place_in_fields(slot, bit, bits);
  }
  const int low_bits = low_plane(bits);
  if (bit >= low_bits) {
    const BitPlace high = internal::place_in_plane(slot, bits - low_bits, order);
    return {low_bits + high.word, high.bit + bit - low_bits};
  }
  const BitPlace low = internal::place_in_plane(slot, low_bits, order);
  return {low.word, low.bit + bit};
}

/// How many bits of a code, from bit 0 up, follow each other in one word.
SUBBYTE_DEVICE constexpr int bits_together(Slot slot, int bits, CodeOrder order) {
  if (order == CodeOrder::kPairs && (bits == 3 || bits == 5)) {
    return slot.step == kSteps - 1 && slot.reg == 3 ? 1 : bits;
  }
  return low_plane(bits);
}

/// Words of the first piece and of each that follows, of which there may be none.
SUBBYTE_DEVICE constexpr int first_piece(int bits) {
  return bits == 3 ? 2 : bits > 4 ? 4 : bits;
}
SUBBYTE_DEVICE constexpr int second_piece(int bits) {
  return bits == 16 ? 4 : bits - first_piece(bits);
}
SUBBYTE_DEVICE constexpr int pieces_after_first(int bits) {
  return bits == 16 ? 3 : second_piece(bits) > 0 ? 1 : 0;
}

/// Word `word` of a lane, in words from the begin of its tile.
SUBBYTE_DEVICE constexpr int word_in_tile(int lane, int word, int bits) {
  const int first = first_piece(bits);
  if (word < first) return lane * first + word;
  const int second = second_piece(bits);
  const int piece = (word - first) / second;
  return kLanes * (first + piece * second) + lane * second + (word - first) % second;
}

SUBBYTE_DEVICE constexpr int tile_bytes(int bits) {
  return kLanes * 4 * bits;
}

/// How the one, two or four bytes of a scale are read; of two levels superblock.h says it.
enum class ScaleKind : uint8_t { kF32, kF16, kBF16, kE8M0, kE4M3, kE4M4, kTwoLevels };

/// 0 where there are two levels.
SUBBYTE_DEVICE constexpr int scale_bytes(ScaleKind kind) {
  if (kind == ScaleKind::kTwoLevels) return 0;
  return kind == ScaleKind::kF32 ? 4 : kind == ScaleKind::kF16 || kind == ScaleKind::kBF16 ? 2 : 1;
}

/// Which row of the matrix is row `row` of strip `strip`. The two that interleave put the gate and
/// the up projection of 8 hidden values into one strip, 8 rows above 8 rows, so that one lane has
/// both in its registers and the activation costs no traffic.
enum class RowOrder : uint8_t {
  kNatural,
  kGateAboveUp,  // the matrix has all gate rows first: two matrices, one below the other
  kGateUpPairs,  // even rows are gate, odd rows up: gpt-oss
};

SUBBYTE_DEVICE constexpr int64_t source_row(RowOrder order, int64_t strip, int row, int64_t rows) {
  const int64_t hidden = strip * 8 + row % 8;
  switch (order) {
    case RowOrder::kGateAboveUp:
      return hidden >= rows / 2 ? rows : row / 8 * (rows / 2) + hidden;
    case RowOrder::kGateUpPairs:
      return 2 * hidden + row / 8;
    default:
      return strip * kStripRows + row;
  }
}

/// Where row `row` of the canonical matrix went: the inverse of source_row().
struct PackedRow {
  int64_t strip;
  int row;  // of the strip
};
SUBBYTE_DEVICE constexpr PackedRow packed_row(RowOrder order, int64_t row, int64_t rows) {
  if (order == RowOrder::kNatural) return {row / kStripRows, static_cast<int>(row % kStripRows)};
  const bool pairs = order == RowOrder::kGateUpPairs;
  const int64_t hidden = pairs ? row / 2 : row % (rows / 2);
  const int64_t is_up = pairs ? row % 2 : row / (rows / 2);
  return {hidden / 8, static_cast<int>(8 * is_up + hidden % 8)};
}

}  // namespace subbyte::gpu
