#pragma once
// A product through the public C++ headers, for tests that see the layers.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "subbyte/format.h"

namespace subbyte::testing {

/// Bytes of a canonical matrix (subbyte/matrix.h).
struct CanonicalBytes {
  WeightFormat format;
  int64_t rows = 0;
  int64_t cols = 0;
  std::span<const std::byte> codes = {};
  std::span<const std::byte> scales = {};
  std::span<const std::byte> zeros = {};
};

/// x W^T for m rows of x, by Cpu::linear() with so many threads; empty where something is refused.
std::vector<float> multiply_in_cpp(const CanonicalBytes& weights, std::span<const float> x,
                                   int64_t m, int num_threads);

}  // namespace subbyte::testing
