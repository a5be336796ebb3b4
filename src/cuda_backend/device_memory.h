#pragma once
// Memory of the GPU and pinned memory of the host, as owners that grow.

#include "device/gpu.h"

namespace subbyte {

using device::cuda_error;

/// Memory of the GPU, and pinned memory of the host, that steps use.
device::Memory& step_memory();
device::Memory& pinned_step_memory();
/// Rises whenever some of it is allocated or given back: while it is the same, addresses mean what
/// they did.
uint64_t memory_epoch();

class CudaBuffer {
 public:
  /// `memory`: of the GPU that is current when it grows, or pinned.
  explicit CudaBuffer(device::Memory& memory = step_memory()) : memory_(&memory) {}

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

/// Memory for one call after the other on a stream, of which each gets the same bytes.
class OneBuffer : public device::Memory {
 public:
  Status reserve(int64_t bytes) { return buffer_.grow(bytes); }
  Result<device::Buffer> allocate(int64_t bytes, device::Stream) override {
    SUBBYTE_CHECK(buffer_.grow(bytes));
    return device::Buffer({}, buffer_.data(), bytes);
  }
  int64_t size() const { return buffer_.size(); }

 private:
  CudaBuffer buffer_;
};

}  // namespace subbyte
