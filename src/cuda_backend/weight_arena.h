#pragma once
// Device memory of weights: handed out of one allocation of the size that a model was found to
// need, so that loading neither waits for the driver at each matrix nor wastes its granularity.

#include <memory>
#include <vector>

#include "cuda_backend/device_memory.h"

namespace subbyte {

/// Bytes of an allocation that others share.
class DeviceBytes {
 public:
  DeviceBytes() = default;
  DeviceBytes(std::shared_ptr<const CudaBuffer> owner, std::byte* data, int64_t size)
      : owner_(std::move(owner)), data_(data), size_(size) {}

  std::byte* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  std::shared_ptr<const CudaBuffer> owner_;
  std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

class WeightArena {
 public:
  /// Bytes that take(bytes) uses up.
  static int64_t aligned(int64_t bytes);

  /// One allocation for what is taken next. Code cuda.memory.
  Status reserve(int64_t bytes);
  /// `bytes` at a multiple of 256, in an allocation of their own where the reserve does not hold
  /// them; none for 0 bytes. Code cuda.memory.
  Result<DeviceBytes> take(int64_t bytes);
  /// Ends the handing out of what is left of the reserve.
  void close();

  /// Bytes of the allocations that are still in use.
  int64_t held() const;

 private:
  std::shared_ptr<const CudaBuffer> reserve_;
  int64_t used_ = 0;  // of it
  std::vector<std::weak_ptr<const CudaBuffer>> allocations_;

  Result<std::shared_ptr<const CudaBuffer>> allocate(int64_t bytes);
};

}  // namespace subbyte
