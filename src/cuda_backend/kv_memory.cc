#include "cuda_backend/kv_memory.h"

#include <cuda_runtime_api.h>

#include <string>

#include "base/checked.h"

namespace subbyte {

Result<std::unique_ptr<CudaKvMemory>> CudaKvMemory::create(const KvShape& shape, int64_t num_pages,
                                                           cuda::Stream stream) {
  const auto bytes =
      checked_mul(static_cast<uint64_t>(shape.page_bytes()), static_cast<uint64_t>(num_pages));
  CudaBuffer memory;
  if (!bytes || !memory.grow(static_cast<int64_t>(*bytes)).ok()) {
    return Error{"kv.memory", "not enough GPU memory for a key-value cache of " +
                                  std::to_string(num_pages * kPagePositions) + " positions of " +
                                  std::to_string(shape.bytes_per_position()) + " bytes"};
  }
  return std::unique_ptr<CudaKvMemory>(new CudaKvMemory(shape, std::move(memory), stream));
}

Result<std::unique_ptr<CudaStateMemory>> CudaStateMemory::create(const CacheGroup& group,
                                                                 int64_t num_states) {
  const int64_t state_bytes = cache_unit_bytes(group, Element::kF32);
  const auto bytes =
      checked_mul(static_cast<uint64_t>(state_bytes), static_cast<uint64_t>(num_states));
  CudaBuffer memory;
  if (!bytes || !memory.grow(static_cast<int64_t>(*bytes)).ok()) {
    return Error{"kv.memory", "not enough GPU memory for " + std::to_string(num_states) +
                                  " states of " + std::to_string(state_bytes) + " bytes"};
  }
  return std::unique_ptr<CudaStateMemory>(new CudaStateMemory(group, std::move(memory)));
}

/// In the order of the stream, so after what earlier steps wrote. An error shows in the next step.
void CudaKvMemory::copy_page(int32_t from, int32_t to, int64_t positions) {
  const auto run = static_cast<std::size_t>(shape_.run_bytes());
  const auto runs = static_cast<std::size_t>(shape_.page_bytes()) / run;
  const auto copy = [&](int64_t at, int64_t bytes) {
    cudaMemcpy2DAsync(bytes_.data() + to * shape_.page_bytes() + at, run,
                      bytes_.data() + from * shape_.page_bytes() + at, run,
                      static_cast<std::size_t>(bytes), runs, cudaMemcpyDeviceToDevice, stream_);
  };
  copy(0, positions * shape_.head_dim * shape_.element_bytes());
  if (shape_.scale_bytes() > 0) copy(shape_.elements_bytes(), positions * shape_.scale_bytes());
}

KvLayer CudaKvMemory::layer(int64_t layer) const {
  return {bytes_.data(), shape_.page_bytes(), layer * shape_.layer_bytes(), shape_.run_bytes(),
          shape_.type};
}

}  // namespace subbyte
