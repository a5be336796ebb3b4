#include "cuda_backend/read_bandwidth.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "cuda_backend/weight_arena.h"
#include "kernels/cuda/ops/read.h"

namespace subbyte {
namespace {

constexpr int kReads = 8;              // of which the best counts: clocks need a while to rise
constexpr int64_t kCacheMultiple = 2;  // how far beyond the cache a measurement has to be

int64_t cache_bytes() {
  int device = 0;
  int bytes = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device);
  return bytes;
}

/// Milliseconds of one read; 0 on an error.
float time_read(const DeviceBytes& memory, const CudaBuffer& sink, cudaEvent_t begin,
                cudaEvent_t end, cudaStream_t stream) {
  float milliseconds = 0;
  cudaEventRecord(begin, stream);
  cuda::run_read(memory.data(), memory.size() / 16 * 16, reinterpret_cast<unsigned*>(sink.data()),
                 false, stream);
  cudaEventRecord(end, stream);
  if (cudaEventSynchronize(end) != cudaSuccess) return 0;
  cudaEventElapsedTime(&milliseconds, begin, end);
  return milliseconds;
}

}  // namespace

double measure_read_bandwidth(const DeviceBytes& memory, cuda::Stream stream) {
  if (memory.size() < kCacheMultiple * cache_bytes()) return 0;
  CudaBuffer sink;
  if (!sink.grow(sizeof(unsigned)).ok()) return 0;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  double best = 0;
  if (cudaEventCreate(&begin) == cudaSuccess && cudaEventCreate(&end) == cudaSuccess) {
    for (int i = 0; i < kReads; ++i) {
      const float milliseconds = time_read(memory, sink, begin, end, stream);
      if (milliseconds > 0) {
        best = std::max(best, static_cast<double>(memory.size()) / milliseconds * 1e3);
      }
    }
  }
  if (begin != nullptr) cudaEventDestroy(begin);
  if (end != nullptr) cudaEventDestroy(end);
  return best;
}

}  // namespace subbyte
