#pragma once
// The pages of the key-value cache in the memory of the GPU.

#include "cuda_backend/device_memory.h"
#include "kernels/cuda/ops/elements.h"
#include "ops/kv_pool.h"

namespace subbyte {

class CudaKvMemory : public KvMemory {
 public:
  /// Code kv.memory when the GPU has no room.
  static Result<std::unique_ptr<CudaKvMemory>> create(const KvShape& shape, int64_t num_pages,
                                                      cuda::Stream stream);

  void copy_page(int32_t from, int32_t to, int64_t positions) override;

  cuda::KvLayer layer(int64_t layer) const;

 private:
  CudaKvMemory(const KvShape& shape, CudaBuffer bytes, cuda::Stream stream)
      : shape_(shape), bytes_(std::move(bytes)), stream_(stream) {}

  KvShape shape_;
  CudaBuffer bytes_;
  cuda::Stream stream_;
};

}  // namespace subbyte
