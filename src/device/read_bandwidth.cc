// What the memory of a GPU gives.

#include <cuda_runtime_api.h>

#include <algorithm>

#include "device/machines.h"
#include "kernels/cuda/read.h"

namespace subbyte::device {
namespace {

constexpr int kReads = 8;              // of which the best counts: clocks need a while to rise
constexpr int64_t kCacheMultiple = 2;  // how far beyond the cache a measurement has to be

int64_t cache_bytes(const Gpu& gpu) {
  int bytes = 0;
  static_cast<void>(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, gpu.index()));
  return bytes;
}

/// Milliseconds of one read; 0 on an error.
float time_read(std::span<const std::byte> memory, const Buffer& sink, cudaEvent_t begin,
                cudaEvent_t end, cudaStream_t stream) {
  float milliseconds = 0;
  cudaEventRecord(begin, stream);
  cuda::run_read(memory.data(), std::ssize(memory) / 16 * 16,
                 reinterpret_cast<unsigned*>(sink.data()), false, stream);
  cudaEventRecord(end, stream);
  if (cudaEventSynchronize(end) != cudaSuccess) return 0;
  cudaEventElapsedTime(&milliseconds, begin, end);
  return milliseconds;
}

}  // namespace

double measure_read_bandwidth(std::span<const std::byte> memory, const Gpu& gpu) {
  if (std::ssize(memory) < kCacheMultiple * cache_bytes(gpu)) return 0;
  const Result<Buffer> sink = driver_memory().allocate(sizeof(unsigned), gpu.stream());
  if (!sink.ok()) return 0;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  double best = 0;
  if (cudaEventCreate(&begin) == cudaSuccess && cudaEventCreate(&end) == cudaSuccess) {
    for (int i = 0; i < kReads; ++i) {
      const float milliseconds =
          time_read(memory, *sink, begin, end, static_cast<cudaStream_t>(gpu.stream()));
      if (milliseconds > 0) {
        best = std::max(best, static_cast<double>(memory.size()) / milliseconds * 1e3);
      }
    }
  }
  if (begin != nullptr) cudaEventDestroy(begin);
  if (end != nullptr) cudaEventDestroy(end);
  return best;
}

}  // namespace subbyte::device
