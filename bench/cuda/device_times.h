#pragma once
// What the GPU gives by itself, to compare with: its read bandwidth and the products of cuBLAS.

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <string>

#include "bench/cuda/cublas.h"
#include "bench/cuda/weights_pool.h"

namespace subbyte::bench {

/// One of our products with the weights of a pool.
struct OurProduct {
  const cuda::Plan& plan;
  const cuda::PackedFormat& format;
  cuda::Number number = cuda::Number::kF16;
  bool dependent = false;      // launches
  bool rounds_inputs = false;  // W8A8
};

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

  /// Microseconds of one of ours, with weights that lie in the pool (WeightsPool::fill()).
  double our_product(const OurProduct& product, int64_t m);
  /// Launches it with those of copy `i` of the pool, or with others.
  void launch(const OurProduct& product, int64_t m, int i) { launch(product, m, pool_.copy(i)); }
  void launch(const OurProduct& product, int64_t m, const std::byte* weights);
  /// Microseconds of launch(i), which reads copy `i` of `bytes` of weights: so many launches that
  /// none finds its own in the caches.
  double rotate(std::size_t bytes, int64_t m, int64_t rows, int64_t cols,
                const std::function<void(int)>& launch);

  WeightsPool& pool() { return pool_; }
  cudaStream_t stream() const { return stream_; }
  std::byte* x() const { return x_; }
  std::byte* y() const { return y_; }
  std::byte* workspace() const { return workspace_; }
  unsigned* sink() const { return sink_; }

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
