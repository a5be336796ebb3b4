#pragma once
// Numeric formats, and how weights are stored in them.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "subbyte/version.h"

SUBBYTE_BEGIN_NAMESPACE

/// The meaning of the bits of a number.
enum class Format : uint8_t {
  kNone,
  kF32,
  kF16,
  kBF16,
  kE2M1,  // FP4 of MXFP4 and NVFP4
  kE4M3,  // FP8; no infinity
  kE5M2,  // FP8
  kE4M4,  // scales of kbit
  kE8M0,  // powers of two, scales of MX formats
  kU2,    // uN: integers from 0
  kU3,
  kU4,
  kU5,
  kU6,
  kU7,
  kU8,
  kI2,  // iN: the same codes, with 2^(N-1) subtracted
  kI3,
  kI4,
  kI5,
  kI6,
  kI7,
  kI8,
  kNF4,   // table of bitsandbytes' NF4
  kNFL2,  // tables of bitsandbytes' kbit
  kNFL3,
  kNFL4,
  kNFL5,
  kVQ2,  // indices of vectors of 4 and of 2 weights
  kVQ4,
  kIQ4  // table of ggml's IQ4_NL and IQ4_XS
};

/// "e2m1", "u4", "bf16"; "none" for kNone.
std::string_view name(Format format);
/// The format of that name, if there is one.
std::optional<Format> find_format(std::string_view name);
/// Bits of one code, 2 to 32; 0 for kNone.
int bits(Format format);
/// The number that a code stands for. `code` is below 2^bits, and `format` not kNone.
double decode(Format format, uint32_t code);
/// The code of the number next to `value`, of two as near the even one; beyond the largest it is
/// the largest, or infinity where the format has it. `format` is not kNone.
uint32_t encode(Format format, double value);

/// How the zero points of a matrix are stored, and what they mean:
///
///   kNone         w = element(code) * scale
///   kU8, kU16     w = (element(code) - zero) * scale; kU16 is for 8-bit codes, where GPTQ v1 can
///                 mean 256
///   kF16, kBF16,  w = element(code) * scale + zero, a float zero point, of integers: with iN that
///   kF32          is tinygemm's (q - 2^(N-1)) * s + z
///   kOffsetU4,    the same, where zero is an integer of two levels, as scales may be
///   kOffsetU6
enum class Zero : uint8_t { kNone, kU8, kU16, kF16, kBF16, kF32, kOffsetU4, kOffsetU6 };

/// Inputs that share the second level of scales and offsets of two levels: a factor of f16, which
/// the integers of their groups multiply.
inline constexpr int64_t kSuperblock = 256;

/// How the weights of a matrix are stored.
struct WeightFormat {
  Format element = Format::kF32;
  /// kNone: dense, the element is the weight. An integer: two levels, that times an f16 for each
  /// kSuperblock inputs.
  Format scale = Format::kNone;
  Zero zero = Zero::kNone;
  int64_t group_size = 0;  // inputs that share a scale; 0: the whole row
  /// Inputs that the stored weights want rotated: each run of so many x is H x / sqrt(rotation)
  /// first, H being the matrix of Hadamard. 16, 64 or 256; 0: none.
  int64_t rotation = 0;

  bool operator==(const WeightFormat&) const = default;
};

/// For people: "u4 g128 scale f16 zero u8", "i4 g32 scale bf16 offset bf16", "bf16",
/// "vq2 g32 scale e4m4 rotated 256", "u4 g32 scale u6 offset u6 x f16 g256" for two levels.
std::string to_string(const WeightFormat& format);
/// Bits for each weight of a row of `cols`, scales and zero points counted: 4.25 for MXFP4, 4.1875
/// for 4-bit codes with group 128, f16 scales and u8 zero points.
double bits_per_weight(const WeightFormat& format, int64_t cols);

SUBBYTE_END_NAMESPACE
