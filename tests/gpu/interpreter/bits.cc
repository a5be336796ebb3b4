// Moves, and operations of bits.
#include <algorithm>
#include <bit>

#include "machine.h"
#include "report.h"

namespace subbyte::interpreter {
namespace {

uint64_t source(const Thread& thread, const Instruction& in, size_t i) {
  return value_of(thread, in.operands[i]);
}

uint32_t source32(const Thread& thread, const Instruction& in, size_t i) {
  return static_cast<uint32_t>(source(thread, in, i));
}

int bits_in(Type type) {
  return 8 * width(type);
}

uint64_t ones(int count) {
  return count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
}

/// mov, also from and into the parts of a register: mov.b32 {%rs1, %rs2}, %r1
void move(Thread& thread, const Instruction& in) {
  const Operand& to = in.operands[0];
  const Operand& from = in.operands[1];
  if (to.kind == OperandKind::kVector) {
    const uint64_t whole = value_of(thread, from);
    const int bits = bits_in(in.type) / static_cast<int>(to.parts.size());
    int shift = 0;
    for (const Operand& part : to.parts) {
      set(thread, part, whole >> shift & ones(bits));
      shift += bits;
    }
  } else if (from.kind == OperandKind::kVector) {
    const int bits = bits_in(in.type) / static_cast<int>(from.parts.size());
    uint64_t whole = 0;
    int shift = 0;
    for (const Operand& part : from.parts) {
      whole |= (value_of(thread, part) & ones(bits)) << shift;
      shift += bits;
    }
    set(thread, to, whole);
  } else {
    set(thread, to, low_bits(in.type, value_of(thread, from)));
  }
}

uint64_t masked(const Instruction& in, uint64_t value) {
  return in.type == Type::kPred ? value & 1 : low_bits(in.type, value);
}

void logical(Thread& thread, const Instruction& in) {
  const auto operand = [&](size_t i) -> uint64_t {
    const uint64_t value = source(thread, in, i);
    return in.operands[i].negated ? ~value : value;
  };
  const uint64_t a = operand(1);
  const uint64_t b = operand(2);
  const uint64_t result = in.operation == Operation::kAnd  ? a & b
                          : in.operation == Operation::kOr ? a | b
                                                           : a ^ b;
  set(thread, in.operands[0], masked(in, result));
}

void invert(Thread& thread, const Instruction& in) {
  set(thread, in.operands[0], masked(in, ~source(thread, in, 1)));
}

void shift_left(Thread& thread, const Instruction& in) {
  const uint32_t count = source32(thread, in, 2);
  const bool gone = count >= static_cast<uint32_t>(bits_in(in.type));
  set(thread, in.operands[0], gone ? 0 : low_bits(in.type, source(thread, in, 1) << count));
}

void shift_right(Thread& thread, const Instruction& in) {
  const uint32_t most = static_cast<uint32_t>(bits_in(in.type)) - 1;
  const uint32_t count = source32(thread, in, 2);
  const uint64_t a = source(thread, in, 1);
  if (is_signed(in.type)) {
    const int64_t result = signed_bits(in.type, a) >> std::min(count, most);
    set(thread, in.operands[0], low_bits(in.type, static_cast<uint64_t>(result)));
  } else {
    set(thread, in.operands[0], count > most ? 0 : low_bits(in.type, a) >> count);
  }
}

/// shf: 32 bits of two registers.
void shift_funnel(Thread& thread, const Instruction& in) {
  const uint64_t both = source32(thread, in, 1) | uint64_t{source32(thread, in, 2)} << 32;
  uint32_t count = source32(thread, in, 3);
  count = in.has("wrap") ? count & 31 : std::min(count, 32u);
  const uint64_t result = in.has("l") ? both << count >> 32 : both >> count;
  set(thread, in.operands[0], result & 0xffffffff);
}

/// lop3: bit 4 a + 2 b + c of a table for each three bits.
void look_up(Thread& thread, const Instruction& in) {
  const uint32_t a = source32(thread, in, 1);
  const uint32_t b = source32(thread, in, 2);
  const uint32_t c = source32(thread, in, 3);
  const uint64_t table = source(thread, in, 4);
  uint32_t result = 0;
  for (uint32_t i = 0; i < 8; ++i) {
    if ((table >> i & 1) == 0) continue;
    result |= ((i & 4) != 0 ? a : ~a) & ((i & 2) != 0 ? b : ~b) & ((i & 1) != 0 ? c : ~c);
  }
  set(thread, in.operands[0], result);
}

/// prmt without a mode: each nibble of the third operand chooses a byte of the first two, or the
/// sign of one.
void permute(Thread& thread, const Instruction& in) {
  if (in.words.size() > 2) stop("no such mode of prmt is known");
  const uint64_t bytes = source32(thread, in, 1) | uint64_t{source32(thread, in, 2)} << 32;
  const uint32_t selector = source32(thread, in, 3);
  uint64_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t nibble = selector >> (4 * i) & 15;
    uint64_t byte = bytes >> (8 * (nibble & 7)) & 0xff;
    if ((nibble & 8) != 0) byte = (byte & 128) != 0 ? 0xff : 0;
    result |= byte << (8 * i);
  }
  set(thread, in.operands[0], result);
}

void extract_field(Thread& thread, const Instruction& in) {
  const int bits = bits_in(in.type);
  const uint64_t a = low_bits(in.type, source(thread, in, 1));
  const int at = static_cast<int>(source(thread, in, 2) & 0xff);
  const int count = static_cast<int>(source(thread, in, 3) & 0xff);
  uint64_t field = at >= bits ? 0 : a >> at & ones(count);
  if (is_signed(in.type) && count > 0 && count < bits) {
    const int sign = std::min(at + count, bits) - 1;
    if ((a >> sign & 1) != 0) field |= ~ones(count);
  }
  set(thread, in.operands[0], low_bits(in.type, field));
}

void insert_field(Thread& thread, const Instruction& in) {
  const uint64_t a = source(thread, in, 1);
  const uint64_t b = source(thread, in, 2);
  const int at = static_cast<int>(source(thread, in, 3) & 0xff);
  const uint64_t mask = ones(static_cast<int>(source(thread, in, 4) & 0xff));
  const bool outside = at >= bits_in(in.type);
  const uint64_t result = outside ? b : (b & ~(mask << at)) | (a & mask) << at;
  set(thread, in.operands[0], low_bits(in.type, result));
}

void count_ones(Thread& thread, const Instruction& in) {
  const uint64_t a = low_bits(in.type, source(thread, in, 1));
  set(thread, in.operands[0], static_cast<uint64_t>(std::popcount(a)));
}

void count_leading_zeros(Thread& thread, const Instruction& in) {
  const uint64_t a = low_bits(in.type, source(thread, in, 1));
  set(thread, in.operands[0], static_cast<uint64_t>(std::countl_zero(a) - (64 - bits_in(in.type))));
}

void reverse_bits(Thread& thread, const Instruction& in) {
  const uint64_t a = source(thread, in, 1);
  const int bits = bits_in(in.type);
  uint64_t result = 0;
  for (int i = 0; i < bits; ++i) result |= (a >> i & 1) << (bits - 1 - i);
  set(thread, in.operands[0], result);
}

void find_first_bit(Thread& thread, const Instruction& in) {
  uint64_t a = low_bits(in.type, source(thread, in, 1));
  if (is_signed(in.type) && signed_bits(in.type, a) < 0) a = low_bits(in.type, ~a);
  uint64_t result = 0xffffffff;
  if (a != 0) {
    const auto highest = static_cast<uint64_t>(63 - std::countl_zero(a));
    const auto last = static_cast<uint64_t>(bits_in(in.type) - 1);
    result = in.has("shiftamt") ? last - highest : highest;
  }
  set(thread, in.operands[0], result);
}

/// Kernels ask only where all lanes are active.
void ask_active_lanes(Thread& thread, const Instruction& in) {
  set(thread, in.operands[0], 0xffffffff);
}

constexpr ThreadInstruction kInstructions[] = {
    {"mov", move},
    {"and", logical},
    {"or", logical},
    {"xor", logical},
    {"not", invert},
    {"shl", shift_left},
    {"shr", shift_right},
    {"shf", shift_funnel},
    {"lop3", look_up},
    {"prmt", permute},
    {"bfe", extract_field},
    {"bfi", insert_field},
    {"popc", count_ones},
    {"clz", count_leading_zeros},
    {"brev", reverse_bits},
    {"bfind", find_first_bit},
    {"activemask", ask_active_lanes},
};

}  // namespace

const ThreadInstruction* find_bit_instruction(std::string_view name) {
  return find_in(kInstructions, name);
}

}  // namespace subbyte::interpreter
