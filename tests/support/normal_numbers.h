#pragma once
// Normal numbers for tests that fill millions of them.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/random.h"

namespace subbyte::testing {

/// One of 65,536 standard normal numbers, which are drawn once: a logarithm and a cosine for each
/// would take longer than what many tests do with it.
inline float normal_number(Random& random) {
  static const std::vector<float> numbers = [] {
    Random all(20261130);
    std::vector<float> drawn(std::size_t{1} << 16);
    for (float& x : drawn) x = static_cast<float>(all.normal());
    return drawn;
  }();
  return numbers[random.next() >> 48];
}

}  // namespace subbyte::testing
