#pragma once
// From packed codes to the registers of a tensor core instruction, exactly: one text for CUDA, for
// Metal and for the host, which tests it.
//
// A decoder turns the words that a lane holds of a tile into the four registers of one step of 16
// inputs (tile_order.h). Its values times kGain are the elements of the format; the caller applies
// the scale of the group.
//
//   Integers<Number, b>  code - zero for b = 2 to 6 and 8. The code is put into the mantissa of a
//                        float whose last bit is worth 1 (1024 in f16, 128 in bf16), so that one
//                        subtraction, which is exact, leaves code - zero
//   E2M1<Number>         sign and three bits moved to where exponent and mantissa are; the
//                        difference of the two biases, 2^14 or 2^126, is a factor. 0.5 is a
//                        subnormal then, so machines that may flush subnormals use another formula
//   E4M3<Number>         an instruction, where the machine has one. Else sign and seven bits moved
//                        in the same way, and a product with 2^8 or 2^120; the two codes of NaN
//                        read as 480 and -480 then
//   Codebook<Number, b>  a table: of pairs up to 4 bits, by the registers of the warp for 5
//   Vectors<Number, b>   a table: of pairs for 4 bits, of fours for 2
//   Floats<Number>       numbers of the activations' type, which are the registers
//
// Integers are also decoded raw, with the zero point left in: a caller that knows the sum of the
// inputs of a group subtracts zero * sum once for the group. In f16 the code itself is a number
// then, a subnormal (code * 2^-24), in bf16 it is 128 + code. Registers 1 and 3, which are one row,
// may come 4 or 16 times too large where that saves a shift.
//
// And as bytes, for tensor core instructions of integers (m16n8k32), whose inputs may come in any
// order as long as both operands have the same: byte_col() says which input a byte belongs to.
//
// Instructions for each two weights (f16 / bf16): Integers 4: 2.25 / 2.75, raw 1.25 / 1.75, as
// bytes 0.25; E2M1 3.75 / 4.75, E4M3 1 / 4, of moved bits 4 / 4; Codebook 4: 3 and a load.

#include "kernels/gpu/dialect.h"

namespace subbyte::gpu {

SUBBYTE_KERNEL_FUNCTION uint32_t both_halves(uint32_t value) {
  return value * 0x10001u;
}

/// The words that a lane holds of a tile, and the four registers of a step.
using Words = SUBBYTE_THREAD const uint32_t*;
using Registers = SUBBYTE_THREAD uint32_t*;

/// Constants that subtract the zero points of a lane's two outputs: g for the even registers, g + 8
/// for the odd ones.
struct ZeroPair {
  uint32_t even;
  uint32_t odd;
};

template <class Number, int kCodeBits>
struct Integers {
  static SUBBYTE_CONSTANT int kBits = kCodeBits;
  static SUBBYTE_CONSTANT bool kHasZeros = true;
  static SUBBYTE_CONSTANT bool kHasTable = false;
  static SUBBYTE_CONSTANT float kGain = 1;
  /// Every second register of 4-bit codes in f16 comes 16 times too large, without a shift.
  static SUBBYTE_CONSTANT bool kTimes16 = kBits == 4 && Number::kIsF16;
  /// 8 bits do not fit into the mantissa of bf16.
  static SUBBYTE_CONSTANT bool kSplit = kBits == 8 && !Number::kIsF16;
  /// Raw values are kRawFactor (kRawOffset + code), in odd registers kRawFactor (kRawOffset +
  /// kRawOdd code).
  static SUBBYTE_CONSTANT float kRawFactor = Number::kIsF16 ? 0x1p-24f : 1.0f;
  static SUBBYTE_CONSTANT float kRawOffset = Number::kIsF16 || kSplit ? 0.0f : 128.0f;
  static SUBBYTE_CONSTANT int kRawOdd = kBits <= 3 ? 4 : kTimes16 ? 16 : 1;

  static SUBBYTE_KERNEL_FUNCTION ZeroPair zeros(uint32_t even, uint32_t odd) {
    // The last bit of the magic numbers is worth 1, that of 64 in f16 a sixteenth.
    if constexpr (kTimes16) {
      return {both_halves(0x6400u + even), both_halves(0xd400u + 16 * odd)};
    } else if constexpr (kSplit) {
      return {Number::splat(static_cast<int>(even)), Number::splat(static_cast<int>(odd))};
    } else {
      return {Number::kMagic + both_halves(even), Number::kMagic + both_halves(odd)};
    }
  }

  static SUBBYTE_KERNEL_FUNCTION void decode(Words words, int step, ZeroPair zero,
                                             Registers registers) {
    if constexpr (kTimes16) {
      decode_by_fours(words[step], zero, registers);
    } else {
      for (int r = 0; r < 4; ++r) {
        registers[r] = decode_x2(words, step, r, r % 2 == 0 ? zero.even : zero.odd);
      }
    }
  }

  static SUBBYTE_KERNEL_FUNCTION void decode_raw(Words words, int step, Registers registers) {
    for (int r = 0; r < 4; ++r) registers[r] = raw_x2(words, step, r);
  }

  /// Codes of registers 1 and 3, which are output g + 8, are so many times too large as bytes.
  static SUBBYTE_CONSTANT int kByteOdd = kBits > 4 ? 1 : kBits == 4 ? 16 : 4;
  /// Codes of output g carry those of output g + 8, kByteOdd times, in their upper bits: with the
  /// products of both, that of g is a difference, which is cheaper than a mask for each register.
  static SUBBYTE_CONSTANT bool kBytesCarry = kBits == 4;
  /// Which of the two steps an input belongs to is told by its byte, not by its register.
  static SUBBYTE_CONSTANT bool kStepByByte = kBits <= 3;

  /// Registers 0 and 2 have codes of output g of the steps 2 pair and 2 pair + 1, 1 and 3 of g + 8.
  static SUBBYTE_KERNEL_FUNCTION void decode_bytes(Words words, int pair, Registers registers) {
    if constexpr (kBits == 8) {
      for (int r = 0; r < 4; ++r) {
        const int first = 4 * pair + r / 2 * 2;
        registers[r] = pick_bytes(words[first], words[first + 1], r % 2 == 0 ? 0x5140 : 0x7362);
      }
    } else if constexpr (kBits == 4) {
      for (int r = 0; r < 4; ++r) {
        registers[r] = words[2 * pair + r / 2] & (r % 2 == 0 ? 0xffffffff : 0xf0f0f0f0);
      }
    } else if constexpr (kBits > 4) {
      for (int r = 0; r < 4; ++r) {
        const int step = 2 * pair + r / 2;
        const uint32_t low = (words[step] >> (4 * (r % 2))) & 0x0f0f0f0f;
        registers[r] = low | high_above_nibbles(words, step, r % 2, 4, 0x00ff00ff) |
                       high_above_nibbles(words, step, r % 2 + 2, 12, 0xff00ff00);
      }
    } else {
      for (int r = 0; r < 4; ++r) {
        const uint32_t w = r < 2 ? words[pair] : words[pair] >> 4;
        registers[r] = w & (r % 2 == 0 ? 0x03030303 : 0x0c0c0c0c);
        if constexpr (kBits == 3) registers[r] |= high_bits(words[2], pair, r);
      }
    }
  }

  /// The input, of the 32 of two steps, in byte `byte` of registers 0 and 1 (`upper` 0), or 2 and 3
  /// (1), of lanes with lane % 4 = t.
  static SUBBYTE_KERNEL_FUNCTION constexpr int byte_col(int t, int upper, int byte) {
    const int step = kStepByByte ? byte % 2 : upper;
    const int eight = kStepByByte ? upper : byte % 2;
    return 16 * step + 8 * eight + 2 * t + byte / 2;
  }

 private:
  static SUBBYTE_CONSTANT uint32_t kRawMagic = Number::kIsF16 ? 0 : Number::kMagic;

  static SUBBYTE_KERNEL_FUNCTION uint32_t raw_x2(Words words, int step, int r) {
    const int even = r / 2 * 2;
    if constexpr (kBits == 8) {
      const uint32_t bytes = spread_bytes(words[2 * step + r / 2], r % 2, 0);
      if constexpr (kSplit) return join_nibbles(bytes);
      return bytes;
    } else if constexpr (kBits == 4) {
      if (r % 2 != 0 && kRawOdd == 16) {
        return and_or(words[step] >> (4 * even), 0x00f000f0, kRawMagic);
      }
      return and_or(words[step] >> (4 * r), 0x000f000f, kRawMagic);
    } else if constexpr (kBits > 4) {
      return with_high_plane(words, step, r, kRawMagic);
    } else {
      const uint32_t w = words[step / 2] >> (8 * (step % 2) + 2 * even);
      const uint32_t low = and_or(w, r % 2 == 0 ? 0x00030003 : 0x000c000c, kRawMagic);
      if constexpr (kBits == 2) return low;
      const int shift = 4 * step + r - (r % 2 == 0 ? 2 : 4);  // of the high bit, to the right
      const uint32_t high = shift < 0 ? words[2] << -shift : words[2] >> shift;
      return and_or(high, r % 2 == 0 ? 0x00040004 : 0x00100010, low);
    }
  }

  /// The third bits of the codes of register r, above the other two.
  static SUBBYTE_KERNEL_FUNCTION uint32_t high_bits(uint32_t plane, int pair, int r) {
    const int even = 8 * pair + r - (r % 2 == 0 ? 2 : 4);  // to the right, in the first step
    const uint32_t mask = r % 2 == 0 ? 0x00040004 : 0x00100010;
    return (shift_right(plane, even) & mask) | (shift_right(plane, even - 4) & mask << 8);
  }
  static SUBBYTE_KERNEL_FUNCTION uint32_t shift_right(uint32_t w, int by) {
    return by < 0 ? w << -by : w >> by;
  }

  /// Codes of 5 and 6 bits, over `magic`.
  static SUBBYTE_KERNEL_FUNCTION uint32_t with_high_plane(Words words, int step, int r,
                                                          uint32_t magic) {
    const uint32_t low = and_or(words[step] >> (4 * r), 0x000f000f, magic);
    return high_above_nibbles(words, step, r, 4, 0xffffffff) | low;
  }
  /// The bits after the fourth of the codes of register r, from bit `at` of both halves up, where
  /// `mask` has ones.
  static SUBBYTE_KERNEL_FUNCTION uint32_t high_above_nibbles(Words words, int step, int r, int at,
                                                             uint32_t mask) {
    if constexpr (kBits == 5) {
      return shift_right(words[4], 4 * step + r - at) & both_halves(1u << at) & mask;
    } else {
      const int begin = 8 * (step % 2) + 2 * r;
      return shift_right(words[4 + step / 2], begin - at) & both_halves(3u << at) & mask;
    }
  }

  /// Bytes above nothing, as numbers of bf16.
  static SUBBYTE_KERNEL_FUNCTION uint32_t join_nibbles(uint32_t bytes) {
    const uint32_t low = Number::sub(and_or(bytes, 0x000f000f, Number::kMagic), Number::kMagic);
    const uint32_t high =
        Number::sub(and_or(bytes >> 4, 0x000f000f, Number::kMagic), Number::kMagic);
    return Number::fma(high, Number::kSixteen, low);
  }

  static SUBBYTE_KERNEL_FUNCTION void decode_by_fours(uint32_t word, ZeroPair zero,
                                                      Registers registers) {
    for (int r = 0; r < 4; r += 2) {
      const uint32_t w = r == 0 ? word : word >> 8;
      registers[r] = Number::sub(and_or(w, 0x000f000f, Number::kMagic), zero.even);
      registers[r + 1] =
          Number::fma(and_or(w, 0x00f000f0, Number::kMagic), Number::kSixteenth, zero.odd);
    }
  }

  static SUBBYTE_KERNEL_FUNCTION uint32_t decode_x2(Words words, int step, int r, uint32_t zero) {
    if constexpr (kBits == 8) {
      const uint32_t word = words[2 * step + r / 2];
      if constexpr (kSplit) {
        const uint32_t bytes = spread_bytes(word, r % 2, 0);
        const uint32_t low = Number::sub(and_or(bytes, 0x000f000f, Number::kMagic), Number::kMagic);
        const uint32_t high =
            Number::sub(and_or(bytes >> 4, 0x000f000f, Number::kMagic), Number::kMagic);
        return Number::fma(high, Number::kSixteen, Number::sub(low, zero));
      } else {
        return Number::sub(spread_bytes(word, r % 2, 0x64), zero);
      }
    } else {
      return Number::sub(code_in_mantissa(words, step, r), zero);
    }
  }

  static SUBBYTE_KERNEL_FUNCTION uint32_t code_in_mantissa(Words words, int step, int r) {
    if constexpr (kBits == 4) {
      return and_or(words[step] >> (4 * r), 0x000f000f, Number::kMagic);
    } else if constexpr (kBits > 4) {
      return with_high_plane(words, step, r, Number::kMagic);
    } else {
      const uint32_t low =
          and_or(words[step / 2] >> (8 * (step % 2) + 2 * r), 0x00030003, Number::kMagic);
      if constexpr (kBits == 2) return low;
      const int bit = 4 * step + r;
      const uint32_t high = bit < 2 ? words[2] << (2 - bit) : words[2] >> (bit - 2);
      return and_or(high, 0x00040004, low);
    }
  }
};

template <class Number>
struct E2M1 {
  static SUBBYTE_CONSTANT int kBits = 4;
  static SUBBYTE_CONSTANT bool kHasZeros = false;
  static SUBBYTE_CONSTANT bool kHasTable = false;
  /// Raw values are 2^-14 and 2^-126 of the true ones; those without subnormals four times.
  static SUBBYTE_CONSTANT float kGain = !Number::kHasSubnormals ? 0.25f
                                        : Number::kIsF16        ? 16384.0f
                                                                : 1.0f;

  static SUBBYTE_KERNEL_FUNCTION void decode(Words words, int step, Registers registers) {
    for (int r = 0; r < 4; ++r) {
      const uint32_t w = words[step] << (12 - 4 * r);  // sign at the top of each half
      if constexpr (!Number::kHasSubnormals) {
        registers[r] = and_or(w, 0x80008000, magnitude_by_minimum(w));
      } else if constexpr (Number::kIsF16) {
        registers[r] = and_or(w, 0x80008000, (w >> 3) & 0x0e000e00);
      } else {
        // Products with the raw value, 2^-126 of the true one, would underflow.
        registers[r] = Number::mul(and_or(w, 0x80008000, (w >> 6) & 0x01c001c0), 0x7e807e80);
      }
    }
  }

 private:
  /// With the top bit of the exponent set, a value v >= 1 reads as 4v, but 0 and 0.5, whose leading
  /// 1 is not there, as 2 and 3: min(x, 2x - 4) makes that 0 and 2 and leaves the others.
  static SUBBYTE_KERNEL_FUNCTION uint32_t magnitude_by_minimum(uint32_t w) {
    const uint32_t x = Number::kIsF16 ? and_or(w >> 3, 0x0e000e00, 0x40004000)
                                      : and_or(w >> 6, 0x01c001c0, 0x40004000);
    return Number::min(x, Number::fma(x, Number::kTwo, Number::kMinusFour));
  }
};

template <class Number>
struct E4M3 {
  static SUBBYTE_CONSTANT int kBits = 8;
  static SUBBYTE_CONSTANT bool kHasZeros = false;
  static SUBBYTE_CONSTANT bool kHasTable = false;
  static SUBBYTE_CONSTANT float kGain = 1;

  static SUBBYTE_KERNEL_FUNCTION void decode(Words words, int step, Registers registers) {
    for (int r = 0; r < 4; ++r) {
      const uint32_t w = words[2 * step + r / 2];
      if constexpr (Number::kHasE4M3) {
        registers[r] = Number::from_e4m3(w, r % 2);
      } else {
        registers[r] = by_bits(spread_signed(w, r % 2));
      }
    }
  }

 private:
  /// Moved bits are 2^-8 or 2^-120 of the value, subnormals included. The shift moves a sign to the
  /// top of its half, too.
  static SUBBYTE_KERNEL_FUNCTION uint32_t by_bits(uint32_t w) {
    if constexpr (Number::kIsF16) return Number::mul(w << 7 & 0xbf80bf80, 0x5c005c00);
    return Number::mul(w << 4 & 0x87f087f0, 0x7b807b80);
  }
};

template <class Number, int kCodeBits>
struct Codebook {
  static SUBBYTE_CONSTANT int kBits = kCodeBits;
  static SUBBYTE_CONSTANT bool kHasZeros = false;
  static SUBBYTE_CONSTANT bool kHasTable = true;
  static SUBBYTE_CONSTANT float kGain = 1;
  /// Pairs in the table; none for 5 bits.
  static SUBBYTE_CONSTANT int kPairs = kBits == 5 ? 0 : 1 << (2 * kBits);

  /// The codes of a pair, as its index has them.
  static SUBBYTE_KERNEL_FUNCTION int low_code(int index) { return index & ((1 << kBits) - 1); }
  static SUBBYTE_KERNEL_FUNCTION int high_code(int index) { return index >> kBits; }

  static SUBBYTE_KERNEL_FUNCTION void decode(Words words, int step, Table table,
                                             Registers registers) {
    for (int r = 0; r < 4; ++r) registers[r] = decode_x2(words, step, r, table);
  }

  /// Joins bits 30 and 31 of all words, those of the first one in the lowest bits: the 16th pair of
  /// 3 and 5 bits.
  static SUBBYTE_KERNEL_FUNCTION uint32_t last_field(Words words) {
    uint32_t field = words[kBits - 1] >> 30;
    for (int i = kBits - 2; i >= 0; --i) field = shift_in(field, words[i]);
    return field;
  }

 private:
  static SUBBYTE_KERNEL_FUNCTION uint32_t decode_x2(Words words, int step, int r, Table table) {
    if constexpr (kBits == 4) {
      return table.pair_at(words[step], 8 * r, 8);
    } else if constexpr (kBits == 2) {
      return table.pair_at(words[step / 2], 16 * (step % 2) + 4 * r, 4);
    } else if constexpr (kBits == 3) {
      const int field = 4 * step + r;
      if (field == 15) return table.pair(last_field(words));
      return table.pair_at(words[field / 5], 6 * (field % 5), 6);
    } else {
      const int field = 4 * step + r;
      const uint32_t codes = field == 15 ? last_field(words) : words[field / 3] >> 10 * (field % 3);
      return pick_bytes(table.single(codes), table.single(codes >> 5), 0x5410);
    }
  }

  /// field * 4 + the two highest bits of the word: one instruction.
  static SUBBYTE_KERNEL_FUNCTION uint32_t shift_in(uint32_t field, uint32_t word) {
    return field << 2 | word >> 30;
  }
};

/// A byte is one of 256 vectors: two weights of a row of 4 bits each, or four of 2 bits.
template <class N, int kCodeBits>
struct Vectors {
  using Number = N;
  static SUBBYTE_CONSTANT int kBits = kCodeBits;
  static SUBBYTE_CONSTANT bool kHasZeros = false;
  static SUBBYTE_CONSTANT bool kHasTable = true;
  static SUBBYTE_CONSTANT bool kHasVectors = true;
  static SUBBYTE_CONSTANT float kGain = 1;
  /// Entries of 128 bytes for all lanes: pairs, or fours of which two lanes have one.
  static SUBBYTE_CONSTANT int kPairs = 256;

  static SUBBYTE_KERNEL_FUNCTION void decode(Words words, int step, Table table,
                                             Registers registers) {
    if (kBits == 4) {
      for (int r = 0; r < 4; ++r) registers[r] = table.pair_at(words[step], 8 * r, 8);
    } else {
      for (int r = 0; r < 2; ++r) {
        table.four_at(words[step / 2], 16 * (step % 2) + 8 * r, registers[r], registers[r + 2]);
      }
    }
  }
};

template <class Number>
struct Floats {
  static SUBBYTE_CONSTANT int kBits = 16;
  static SUBBYTE_CONSTANT bool kHasZeros = false;
  static SUBBYTE_CONSTANT bool kHasTable = false;
  static SUBBYTE_CONSTANT float kGain = 1;

  static SUBBYTE_KERNEL_FUNCTION void decode(Words words, int step, Registers registers) {
    for (int r = 0; r < 4; ++r) registers[r] = words[4 * step + r];
  }
};

#ifndef __METAL_VERSION__  // whose C++ has no concepts
/// F16 or BF16: two 16-bit floats in a word, which the dialect of the machine defines.
template <class N>
concept IsNumber = requires(uint32_t x) {
  N::kIsF16&& N::kHasSubnormals&& N::kHasE4M3;
  N::sub(x, x);
  N::fma(x, x, x);
  N::splat(1);
};

/// Raw values are kRawFactor (kRawOffset + code), in odd registers kRawFactor (kRawOffset + kRawOdd
/// code), so a caller can subtract zero points later.
template <class D>
concept DecodesWithZeros = requires(Words words, Registers registers, ZeroPair zero) {
  zero = D::zeros(0, 0);
  D::decode(words, 0, zero, registers);
  D::decode_raw(words, 0, registers);
  D::kRawFactor + D::kRawOffset + D::kRawOdd;
};

template <class D>
concept DecodesWithTable = requires(Words words, Registers registers, Table table) {
  D::decode(words, 0, table, registers);
};

template <class D>
concept DecodesAlone = requires(Words words, Registers registers) {
  D::decode(words, 0, registers);
};

template <class D>
concept IsDecoder = ((D::kBits >= 2 && D::kBits <= 8) || D::kBits == 16) &&
                    ((D::kHasZeros && DecodesWithZeros<D>) ||
                     (D::kHasTable && DecodesWithTable<D>) ||
                     (!D::kHasZeros && !D::kHasTable && DecodesAlone<D>));
#endif

/// decode() of every decoder, with what it needs besides words.
template <class Decoder>
SUBBYTE_KERNEL_FUNCTION void decode_step(Words words, int step, ZeroPair zero, Table table,
                                         Registers registers) {
#ifndef __METAL_VERSION__
  static_assert(IsDecoder<Decoder>,
                "a decoder has kBits from 2 to 8 or 16, kHasZeros, kHasTable, decode(words, step, "
                "zeros or table or nothing, registers)");
#endif
  if constexpr (Decoder::kHasZeros) {
    Decoder::decode(words, step, zero, registers);
  } else if constexpr (Decoder::kHasTable) {
    Decoder::decode(words, step, table, registers);
  } else {
    Decoder::decode(words, step, registers);
  }
}

/// decode_raw() of integers, decode() of all others.
template <class Decoder>
SUBBYTE_KERNEL_FUNCTION void decode_raw(Words words, int step, Table table, Registers registers) {
  if constexpr (Decoder::kHasZeros) {
    Decoder::decode_raw(words, step, registers);
  } else if constexpr (Decoder::kHasTable) {
    Decoder::decode(words, step, table, registers);
  } else {
    Decoder::decode(words, step, registers);
  }
}

}  // namespace subbyte::gpu
