#pragma once
// The pages of the key-value cache in the memory of the GPU.

#include "cuda_backend/device_memory.h"
#include "kernels/cuda/common/elements.h"
#include "ops/kv_pool.h"

namespace subbyte {

class CudaKvMemory : public KvMemory {
 public:
  /// Code kv.memory when the GPU has no room.
  static Result<std::unique_ptr<CudaKvMemory>> create(const KvShape& shape, int64_t num_pages,
                                                      cuda::Stream stream);

  void copy_page(int32_t from, int32_t to, int64_t positions) override;

  KvLayer layer(int64_t layer) const;

 private:
  CudaKvMemory(const KvShape& shape, CudaBuffer bytes, cuda::Stream stream)
      : shape_(shape), bytes_(std::move(bytes)), stream_(stream) {}

  KvShape shape_;
  CudaBuffer bytes_;
  cuda::Stream stream_;
};

/// States in the memory of the GPU.
class CudaStateMemory : public KvMemory {
 public:
  /// Code kv.memory when the GPU has no room.
  static Result<std::unique_ptr<CudaStateMemory>> create(const CacheGroup& group,
                                                         int64_t num_states);

  /// Nothing is written to a state that is shared.
  void copy_page(int32_t, int32_t, int64_t) override {}

  /// The numbers of a layer in state 0; a state is layers * state_size numbers after the one
  /// before.
  float* layer(int64_t layer) const {
    return reinterpret_cast<float*>(bytes_.data()) + layer * group_.state_size;
  }
  int64_t stride() const { return group_.layers * group_.state_size; }

 private:
  CudaStateMemory(const CacheGroup& group, CudaBuffer bytes)
      : group_(group), bytes_(std::move(bytes)) {}

  CacheGroup group_;
  CudaBuffer bytes_;
};

}  // namespace subbyte
