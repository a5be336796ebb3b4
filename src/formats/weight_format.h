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

constexpr bool is_offset(Zero zero) {
  return zero == Zero::kF16 || zero == Zero::kBF16 || zero == Zero::kF32;
}

/// How offsets of f16, bf16 or f32 are stored.
constexpr Zero zero_of_offsets(Format number) {
  return number == Format::kF32 ? Zero::kF32 : number == Format::kBF16 ? Zero::kBF16 : Zero::kF16;
}

/// The number that an offset is.
constexpr Format offset_format(Zero zero) {
  return zero == Zero::kF32 ? Format::kF32 : zero == Zero::kBF16 ? Format::kBF16 : Format::kF16;
}

constexpr int zero_bytes(Zero zero) {
  return zero == Zero::kNone ? 0 : zero == Zero::kU8 ? 1 : zero == Zero::kF32 ? 4 : 2;
}

}  // namespace subbyte
