#pragma once
// The two ways in which compressed-tensors packed integers into words of 32 bits. They agree for
// 2, 4 and 8 bits; since June 2026 the other widths are packed densely too, under the same name.
//
//   3 bits, dense   word 0   bits 0..2 code 0, 3..5 code 1, ..., 30..31 the low bits of code 10
//                   word 1   bit 0 the high bit of code 10, 1..3 code 11, ...
//   3 bits, lanes   word 0   bits 0..2 code 0, ..., 27..29 code 9; bits 30 and 31 are 0
//                   word 1   bits 0..2 code 10, ...
//
// Bits after the last code are 0.

#include <cstdint>

#include "base/checked.h"

namespace subbyte {

enum class Packing : uint8_t { kDense, kLanes };

/// Words that hold `count` codes.
constexpr int64_t packed_words(int64_t count, int bits, Packing packing) {
  const auto codes = static_cast<uint64_t>(count);
  return static_cast<int64_t>(packing == Packing::kDense ? ceil_div(codes * bits, 32)
                                                         : ceil_div(codes, 32 / bits));
}

/// Says whether `count` codes lie differently in words of the same number: only the width would
/// tell.
constexpr bool is_ambiguous(int64_t count, int bits) {
  return 32 % bits != 0 && count > 32 / bits &&
         packed_words(count, bits, Packing::kDense) == packed_words(count, bits, Packing::kLanes);
}

/// Code `index` of a sequence whose word i is words(i).
template <typename Words>
uint32_t packed_code(const Words& words, int64_t index, int bits, Packing packing) {
  const uint32_t mask = (1u << bits) - 1u;
  if (packing == Packing::kLanes) {
    const int64_t lanes = 32 / bits;
    return (words(index / lanes) >> (index % lanes * bits)) & mask;
  }
  const int64_t bit = index * bits;
  const auto shift = static_cast<int>(bit % 32);
  uint32_t code = words(bit / 32) >> shift;
  if (shift + bits > 32) code |= words(bit / 32 + 1) << (32 - shift);
  return code & mask;
}

/// ORs `code` into such a sequence: or_word(i, bits) changes word i.
template <typename OrWord>
void put_packed_code(const OrWord& or_word, int64_t index, int bits, Packing packing,
                     uint32_t code) {
  if (packing == Packing::kLanes) {
    const int64_t lanes = 32 / bits;
    return or_word(index / lanes, code << (index % lanes * bits));
  }
  const int64_t bit = index * bits;
  const auto shift = static_cast<int>(bit % 32);
  or_word(bit / 32, code << shift);
  if (shift + bits > 32) or_word(bit / 32 + 1, code >> (32 - shift));
}

}  // namespace subbyte
