#include "bench/cuda/bandwidth.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

namespace subbyte::bench {
namespace {

constexpr int kThreads = 512;
constexpr int kLoads = 8;

/// Each CTA reads a slab of 64 KiB; a thread has eight loads of 16 bytes in flight.
__global__ void __launch_bounds__(kThreads)
    read_kernel(const uint4* data, int64_t pieces, unsigned* sink) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
  const int64_t first = int64_t{blockIdx.x} * kThreads * kLoads + threadIdx.x;
  uint4 v[kLoads];
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const int64_t at = first + i * kThreads;
    v[i] = at < pieces ? __ldcs(data + at) : uint4{};
  }
  unsigned x = 0;
#pragma unroll
  for (int i = 0; i < kLoads; ++i) x |= v[i].x ^ v[i].y ^ v[i].z ^ v[i].w;
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  if (x == 0x12345678) *sink = x;
}

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

void launch_read(const std::byte* data, std::size_t bytes, unsigned* sink, bool dependent,
                 void* stream) {
  const int64_t pieces = static_cast<int64_t>(bytes / 16);
  cudaLaunchConfig_t config = {};
  config.gridDim =
      dim3(static_cast<unsigned>((pieces + kThreads * kLoads - 1) / (kThreads * kLoads)));
  config.blockDim = dim3(kThreads);
  config.stream = static_cast<cudaStream_t>(stream);
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = dependent ? 1 : 0;
  cudaLaunchKernelEx(&config, read_kernel, reinterpret_cast<const uint4*>(data), pieces, sink);
}

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
