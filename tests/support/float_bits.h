#pragma once
// Floats as their bits, so that the sign of a zero counts and NaN equals itself.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

namespace subbyte::testing {

inline std::vector<uint32_t> bits_of(std::span<const float> floats) {
  std::vector<uint32_t> bits(floats.size());
  std::ranges::transform(floats, bits.begin(), [](float x) { return std::bit_cast<uint32_t>(x); });
  return bits;
}

}  // namespace subbyte::testing
