#pragma once
// What the GPU's memory gives at best, and what a kernel costs that only reads.

#include <cstddef>

namespace subbyte::bench {

/// Reads `bytes` from `data` once with all multiprocessors; launched on the stream `stream` (a
/// cudaStream_t), with programmatic dependent launch if `dependent`. `sink` is a word of device
/// memory.
void launch_read(const std::byte* data, std::size_t bytes, unsigned* sink, bool dependent,
                 void* stream);

/// Fills device memory with random bits, each byte reduced to `mask`.
void fill_random(std::byte* data, std::size_t bytes, unsigned seed, unsigned mask, void* stream);

/// Fills with copies of a pattern of `pattern_bytes` in device memory.
void fill_pattern(std::byte* data, std::size_t bytes, const std::byte* pattern,
                  std::size_t pattern_bytes, void* stream);

}  // namespace subbyte::bench
