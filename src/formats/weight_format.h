#pragma once
// A weight format is data: which element a code stands for, how many inputs share a scale, how
// the scale and the zero point are stored. Kernels, importers and exporters look at these fields
// and never at the name of a tool.

#include <cstdint>
#include <string>
#include <string_view>

#include "formats/format.h"

namespace subbyte {

/// Numbers that are stored beside each scale, and their meaning:
///
///   kNone         w = element(code) * scale
///   kU8, kU16     w = (element(code) - zero) * scale; kU16 is for 8-bit codes, where GPTQ v1 can
///                 mean 256
///   kF16, kBF16,  w = element(code) * scale + offset, a float zero point, of integers: with iN
///   kF32          that is tinygemm's (q - 2^(N-1)) * s + z
enum class Zero : uint8_t { kNone, kU8, kU16, kF16, kBF16, kF32 };

struct WeightFormat {
  Format element = Format::kF32;
  Format scale = Format::kNone;  // kNone: dense, the element is the weight
  Zero zero = Zero::kNone;
  int64_t group_size = 0;  // inputs that share a scale; 0: the whole row
  /// Inputs that the stored weights want rotated: each run of so many x is H x / sqrt(rotation)
  /// first, H being the matrix of Hadamard (formats/rotation.h). 0: none.
  int64_t rotation = 0;

  bool operator==(const WeightFormat&) const = default;
};

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

/// Bits for each weight with scales and zero points counted as stored here: 4.25 for MXFP4,
/// 4.1875 for 4-bit codes with group 128, f16 scales and u8 zero points. `cols` is K; it matters
/// when the group is the whole row.
double bits_per_weight(const WeightFormat& format, int64_t cols);

/// For people: "u4 g128 scale f16 zero u8", "i4 g32 scale bf16 offset bf16",
/// "bf16", "vq2 g32 scale e4m4 rotated 256".
std::string to_string(const WeightFormat& format);

}  // namespace subbyte
