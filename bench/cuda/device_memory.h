#pragma once
// Memory of the GPU for measurements.

#include <cstddef>
#include <cstdint>

#include "bench/cuda/graph_timer.h"

namespace subbyte::bench {

class DeviceMemory {
 public:
  explicit DeviceMemory(int64_t bytes) : bytes_(bytes) {
    must(cudaMalloc(reinterpret_cast<void**>(&data_), bytes), "memory");
  }
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_;
  std::byte* data_ = nullptr;
};

}  // namespace subbyte::bench
