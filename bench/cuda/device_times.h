#pragma once
// What the GPU gives by itself, to compare with: its read bandwidth and the products of cuBLAS.

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "bench/cuda/cublas.h"
#include "bench/cuda/weights_pool.h"

namespace subbyte::bench {

/// Device memory for measurements, with random activations of either 16-bit type, and the stream
/// that they run on.
class DeviceTimes {
 public:
  explicit DeviceTimes(int replays);
  ~DeviceTimes();
  DeviceTimes(const DeviceTimes&) = delete;
  DeviceTimes& operator=(const DeviceTimes&) = delete;

  /// Microseconds in which the GPU reads so many bytes of memory (rounded to 16), other ones each
  /// time as far as there are any.
  double read(std::size_t bytes, bool dependent_launch);
  /// B: bytes per second of reads of 671 MB.
  double read_bandwidth();

  /// Finds cuBLAS. Without it, vendor_product() is 0, and the text says why.
  std::string load_cublas();
  /// Microseconds of cuBLAS for y[m][rows] = x[m][cols] w[rows][cols]^T in f16, weights from
  /// memory.
  double vendor_product(int64_t m, int64_t rows, int64_t cols);

  WeightsPool& pool() { return pool_; }
  cudaStream_t stream() const { return stream_; }
  std::byte* x() const { return x_; }
  std::byte* y() const { return y_; }
  std::byte* workspace() const { return workspace_; }
  unsigned* sink() const { return sink_; }

  /// Launches that one measurement of such a product makes.
  static int calls_for(int64_t m, int64_t rows, int64_t cols);

 private:
  int replays_;
  WeightsPool pool_;
  std::unique_ptr<Cublas> cublas_;
  cudaStream_t stream_ = nullptr;
  std::byte* x_ = nullptr;
  std::byte* y_ = nullptr;
  std::byte* workspace_ = nullptr;
  unsigned* sink_ = nullptr;
};

}  // namespace subbyte::bench
