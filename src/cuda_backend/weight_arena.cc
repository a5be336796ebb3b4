#include "cuda_backend/weight_arena.h"

namespace subbyte {

Result<std::shared_ptr<const CudaBuffer>> WeightArena::allocate_apart(int64_t bytes) {
  auto buffer = std::make_shared<CudaBuffer>();
  SUBBYTE_CHECK(buffer->grow(bytes));
  std::erase_if(allocations_, [](const auto& one) { return one.expired(); });
  allocations_.push_back(buffer);
  return std::shared_ptr<const CudaBuffer>(std::move(buffer));
}

Status WeightArena::reserve(int64_t bytes) {
  close();
  SUBBYTE_TRY(reserve_, allocate_apart(bytes));
  return {};
}

void WeightArena::close() {
  reserve_ = nullptr;
  used_ = 0;
}

Result<device::Buffer> WeightArena::allocate(int64_t bytes, device::Stream) {
  if (bytes == 0) return device::Buffer();
  const int64_t size = device::aligned(bytes);
  if (reserve_ != nullptr && size <= reserve_->size() - used_) {
    std::byte* const data = reserve_->data() + used_;
    used_ += size;
    return device::Buffer(reserve_, data, bytes);
  }
  SUBBYTE_TRY(auto own, allocate_apart(size));
  std::byte* const data = own->data();
  return device::Buffer(std::move(own), data, bytes);
}

int64_t WeightArena::held() const {
  int64_t bytes = 0;
  for (const auto& one : allocations_) {
    if (const auto buffer = one.lock()) bytes += buffer->size();
  }
  return bytes;
}

}  // namespace subbyte
