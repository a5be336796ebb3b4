#pragma once
// Copies of packed weights that together are far larger than the GPU's caches.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/linear.h"

namespace subbyte::bench {

/// Device memory for all measurements, filled anew for each format and shape.
class WeightsPool {
 public:
  explicit WeightsPool(std::size_t bytes);
  ~WeightsPool();
  WeightsPool(const WeightsPool&) = delete;
  WeightsPool& operator=(const WeightsPool&) = delete;

  /// Fills it with as many packed matrices as fit: random codes, scales around 0.01 and zero
  /// points.
  void fill(const cuda::PackedFormat& format);
  const std::byte* copy(int i) const { return data_ + i % copies_ * copy_bytes_; }
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::byte* pattern_ = nullptr;
  std::size_t bytes_;
  std::size_t copy_bytes_ = 0;
  int copies_ = 1;
};

/// A matrix without bytes of its own scales and codes: what packed_format() needs of one.
cuda::PackedFormat format_of(const WeightFormat& format, int64_t rows, int64_t cols);

}  // namespace subbyte::bench
