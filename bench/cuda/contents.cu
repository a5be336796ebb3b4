#include "bench/cuda/contents.h"

#include <cuda_runtime.h>

#include <cstdint>

namespace subbyte::bench {
namespace {

__global__ void random_kernel(uint32_t* data, int64_t words, unsigned seed, unsigned mask) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < words; i += step) {
    uint64_t z = (i + 1 + uint64_t{seed} * 0x100000001b3) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    data[i] = static_cast<uint32_t>(z >> 32) & mask;
  }
}

__global__ void pattern_kernel(uint32_t* data, int64_t words, const uint32_t* pattern,
                               int64_t pattern_words) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < words; i += step) {
    data[i] = pattern[i % pattern_words];
  }
}

}  // namespace

void fill_random(std::byte* data, std::size_t bytes, unsigned seed, unsigned mask, void* stream) {
  random_kernel<<<1024, 256, 0, static_cast<cudaStream_t>(stream)>>>(
      reinterpret_cast<uint32_t*>(data), static_cast<int64_t>(bytes / 4), seed, mask);
}

void fill_pattern(std::byte* data, std::size_t bytes, const std::byte* pattern,
                  std::size_t pattern_bytes, void* stream) {
  pattern_kernel<<<1024, 256, 0, static_cast<cudaStream_t>(stream)>>>(
      reinterpret_cast<uint32_t*>(data), static_cast<int64_t>(bytes / 4),
      reinterpret_cast<const uint32_t*>(pattern), static_cast<int64_t>(pattern_bytes / 4));
}

}  // namespace subbyte::bench
