#pragma once
// Scales of two levels of ordinary size.

#include <cstdint>
#include <cstring>
#include <span>

#include "support/random_matrix.h"

namespace subbyte::testing {

/// Divides the factors of two levels by 64, if there are any: their integers make scales and
/// offsets of random matrices as many times as large as others.
inline void shrink_two_levels(RandomMatrix& matrix) {
  const MatrixView& view = matrix.view;
  const FormatInfo& half = info(Format::kF16);
  const auto shrink = [&](std::span<std::byte> numbers) {
    const int64_t row_bytes = std::ssize(numbers) / view.rows;
    for (int64_t at = 0; at < std::ssize(numbers); ++at) {
      const int64_t in_row = at % row_bytes - view.groups();
      if (in_row < 0 || in_row % 2 != 0) continue;
      uint16_t bits = 0;
      std::memcpy(&bits, &numbers[at], 2);
      bits = static_cast<uint16_t>(half.encode(half.decode(bits) / 64, Rounding::kNearestEven));
      std::memcpy(&numbers[at], &bits, 2);
    }
  };
  if (has_two_levels(view.format.scale)) shrink(matrix.scales->span());
  if (has_two_levels(view.format.zero)) shrink(matrix.zeros->span());
}

}  // namespace subbyte::testing
