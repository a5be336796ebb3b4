#pragma once
// Contents for the memory that products are measured on.

#include <cstddef>

namespace subbyte::bench {

/// A mask for 16-bit numbers between 2^-7 and 2 of either type: sign and mantissa random, the
/// exponent near one.
inline constexpr unsigned kNearOne = 0xbbffbbffu;

/// Fills device memory with random bits, each byte reduced to `mask`.
void fill_random(std::byte* data, std::size_t bytes, unsigned seed, unsigned mask, void* stream);

/// Fills with copies of a pattern of `pattern_bytes` in device memory.
void fill_pattern(std::byte* data, std::size_t bytes, const std::byte* pattern,
                  std::size_t pattern_bytes, void* stream);

}  // namespace subbyte::bench
