#pragma once
// Device memory of weights: handed out of one allocation of the size that a model was found to
// need, so that loading neither waits for the driver at each matrix nor wastes its granularity.

#include <memory>
#include <vector>

#include "cuda_backend/device_memory.h"
#include "device/memory.h"

namespace subbyte {

class WeightArena : public device::Memory {
 public:
  /// One allocation for what is allocated next. Code cuda.memory.
  Status reserve(int64_t bytes);
  /// In an allocation of its own where the reserve does not hold it.
  Result<device::Buffer> allocate(int64_t bytes, device::Stream stream) override;
  /// Ends the handing out of what is left of the reserve.
  void close();

  /// Bytes of the allocations that are still in use.
  int64_t held() const;

 private:
  std::shared_ptr<const CudaBuffer> reserve_;
  int64_t used_ = 0;  // of it
  std::vector<std::weak_ptr<const CudaBuffer>> allocations_;

  Result<std::shared_ptr<const CudaBuffer>> allocate_apart(int64_t bytes);
};

}  // namespace subbyte
