#pragma once
// Numeric formats as data. A format says what each code word means; formats.def lists them all in
// the order of the enumeration (subbyte/format.h), and everything else (names, tests, documentation
// table) follows from that list.

#include <cstdint>
#include <span>
#include <string_view>

#include "subbyte/format.h"

namespace subbyte {

/// How a value between two neighbouring codes is rounded.
enum class Rounding : uint8_t {
  kNearestEven,        // ties to the even code: IEEE 754, OCP MX, Hugging Face tools
  kNearestLowerIndex,  // ties to the lower code of the table: ggml's FP4, bitsandbytes' codebooks
  kTowardZero,
};

/// Values that a format can hold besides finite numbers.
enum class Specials : uint8_t {
  kNone,         // every code is a finite number; NaN cannot be encoded
  kNan,          // NaN but no infinity (E4M3, E8M0)
  kNanInfinity,  // IEEE 754
};

struct FormatInfo {
  Format id;
  std::string_view name;  // "e2m1"; unique, lower case
  int bits;               // of one code word, 2 to 32
  Specials specials;
  double max;  // largest finite value; larger ones saturate, or become infinity
  double min;  // smallest (most negative) finite value
  /// Exact value of `code` < 2^bits.
  double (*decode)(uint32_t code);
  /// Code of `value` by `rounding`. Beyond max and min it saturates; only where the format has
  /// infinity, a nearest rounding overflows to it as in IEEE 754 (from half a step beyond max).
  /// Zero and what underflows keep their sign, except that kNearestLowerIndex prefers +0.
  /// NaN gives the canonical NaN code where there is one, else the code of zero or, where there
  /// is no zero, of the value nearest to it.
  uint32_t (*encode)(double value, Rounding rounding);
  /// Numbers that a code stands for. More than 1: a code is a byte, the index of a vector of a
  /// codebook that comes with the matrix; `bits` are those of one number, and decode gives NaN.
  int vector_size = 1;
};

/// Entries of the codebook of such a format.
inline constexpr int kVectors = 256;

/// `format` is not kNone.
const FormatInfo& info(Format format);

/// All formats but those of vectors, in the order of formats.def.
std::span<const FormatInfo* const> all_formats();

}  // namespace subbyte
