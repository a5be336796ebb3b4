#pragma once
// A weight format is data: which element a code stands for, how many inputs share a scale, how
// the scale and the zero point are stored. Kernels, importers and exporters look at these fields
// and never at the name of a tool.

#include <cstdint>

#include "formats/format.h"

namespace subbyte {

inline bool is_dense(const WeightFormat& format) {
  return format.scale == Format::kNone;
}

/// Says that numbers of this type are the first of two levels.
constexpr bool has_two_levels(Format number) {
  return number == Format::kU4 || number == Format::kU6 || number == Format::kI6 ||
         number == Format::kI8;
}

constexpr bool has_two_levels(Zero zero) {
  return zero == Zero::kOffsetU4 || zero == Zero::kOffsetU6;
}

inline bool has_two_levels(const WeightFormat& format) {
  return has_two_levels(format.scale) || has_two_levels(format.zero);
}

constexpr bool is_offset(Zero zero) {
  return zero >= Zero::kF16;
}

/// How offsets of f16, bf16 or f32 are stored.
constexpr Zero zero_of_offsets(Format number) {
  return number == Format::kF32 ? Zero::kF32 : number == Format::kBF16 ? Zero::kBF16 : Zero::kF16;
}

/// The number that an offset is, of its first level where it has two.
constexpr Format offset_format(Zero zero) {
  if (zero == Zero::kOffsetU4) return Format::kU4;
  if (zero == Zero::kOffsetU6) return Format::kU6;
  return zero == Zero::kF32 ? Format::kF32 : zero == Zero::kBF16 ? Format::kBF16 : Format::kF16;
}

/// Bytes of the zero point of a group, of its first level where it has two.
constexpr int zero_bytes(Zero zero) {
  if (zero == Zero::kU8 || has_two_levels(zero)) return 1;
  return zero == Zero::kNone ? 0 : zero == Zero::kF32 ? 4 : 2;
}

/// Says that scales may be of this type: floats of whole bytes, or the first of two levels.
inline bool is_scale(Format number) {
  const bool is_integer = number >= Format::kU2 && number <= Format::kI8;
  if (number == Format::kNone || is_integer) return has_two_levels(number);
  return info(number).bits % 8 == 0;
}

/// Bytes of the scale of a group, of its first level where it has two.
constexpr int scale_bytes(Format scale) {
  switch (scale) {
    case Format::kNone:
      return 0;
    case Format::kF32:
      return 4;
    case Format::kF16:
    case Format::kBF16:
      return 2;
    default:
      return 1;
  }
}

/// Factors of the second level of a row.
constexpr int64_t num_superblocks(int64_t cols) {
  return (cols + kSuperblock - 1) / kSuperblock;
}

}  // namespace subbyte
