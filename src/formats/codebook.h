#pragma once
// Decoding and encoding by a table of strictly increasing values, code = index.
//
// The values are binary32 numbers held as doubles. So the middle of two neighbours is exact in
// double precision and a tie is a tie.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "formats/format.h"

namespace subbyte::formats {

/// Subnormal doubles become +-2^-1022, which no table tells apart from them: with DAZ set, a
/// comparison would take them for zero.
constexpr double away_from_subnormal(double value) {
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const uint64_t sign = bits & (uint64_t{1} << 63);
  const uint64_t smallest_normal = uint64_t{1} << 52;
  if (bits == sign || (bits ^ sign) >= smallest_normal) return value;
  return std::bit_cast<double>(sign | smallest_normal);
}

/// Index of `value` in the table. Rounding::kTowardZero takes the neighbour of smaller magnitude;
/// between the two values around a gap at zero it keeps the sign, as nothing is nearer to zero.
/// NaN is encoded as zero is.
template <std::size_t kSize>
constexpr uint32_t encode_codebook(const std::array<double, kSize>& table, double value,
                                   Rounding rounding) {
  if (value != value) value = 0;
  value = away_from_subnormal(value);
  if (value <= table.front()) return 0;
  if (value >= table.back()) return kSize - 1;
  uint32_t lower = 0;
  while (value >= table[lower + 1]) ++lower;
  const double below = table[lower];
  const double above = table[lower + 1];
  if (value == below) return lower;
  if (rounding == Rounding::kTowardZero) {
    if (below < 0 && above > 0) return value < 0 ? lower : lower + 1;
    return below < 0 ? lower + 1 : lower;
  }
  const double middle = (below + above) / 2;
  if (value != middle) return value < middle ? lower : lower + 1;
  return rounding == Rounding::kNearestEven ? lower + (lower & 1) : lower;
}

template <const auto& kTable>
constexpr FormatInfo codebook_info(Format id, std::string_view name, int bits) {
  return {
      .id = id,
      .name = name,
      .bits = bits,
      .specials = Specials::kNone,
      .max = kTable.back(),
      .min = kTable.front(),
      .decode = [](uint32_t code) { return kTable[code]; },
      .encode = [](double value,
                   Rounding rounding) { return encode_codebook(kTable, value, rounding); },
  };
}

}  // namespace subbyte::formats
