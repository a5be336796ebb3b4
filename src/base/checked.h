#pragma once
// Arithmetic for sizes that come from files: nullopt instead of a wrapped number.

#include <cstdint>
#include <optional>
#include <span>

namespace subbyte {

inline std::optional<uint64_t> checked_add(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

inline std::optional<uint64_t> checked_mul(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

/// Product of all factors. A zero does not hide an overflow: [2^40, 2^40, 0] is refused in any
/// order, because some reader will multiply in another one.
inline std::optional<uint64_t> checked_product(std::span<const uint64_t> factors) {
  uint64_t product = 1;
  bool zero = false;
  for (const uint64_t factor : factors) {
    if (factor == 0) {
      zero = true;
      continue;
    }
    const auto next = checked_mul(product, factor);
    if (!next) return std::nullopt;
    product = *next;
  }
  return zero ? 0 : product;
}

constexpr uint64_t ceil_div(uint64_t a, uint64_t b) {
  return a / b + (a % b != 0);
}
constexpr uint64_t round_up(uint64_t a, uint64_t multiple) {
  return ceil_div(a, multiple) * multiple;
}

}  // namespace subbyte
