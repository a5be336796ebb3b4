#pragma once
// Memory of the GPU and pinned memory of the host, as owners that grow.

#include "device/gpu.h"

namespace subbyte {

using device::cuda_error;

class CudaBuffer {
 public:
  /// `memory`: of the GPU that is current when it grows, or pinned.
  explicit CudaBuffer(device::Memory& memory = device::driver_memory()) : memory_(&memory) {}

  /// Makes it hold at least so many bytes; the contents are lost where it has to grow, and the GPU
  /// waited for. Code cuda.memory.
  Status grow(int64_t bytes) {
    if (bytes <= bytes_.size()) return {};
    bytes_ = device::Buffer();
    SUBBYTE_TRY(bytes_, memory_->allocate(bytes, nullptr));
    return {};
  }

  std::byte* data() const { return bytes_.data(); }
  int64_t size() const { return bytes_.size(); }

 private:
  device::Memory* memory_;
  device::Buffer bytes_;
};

}  // namespace subbyte
