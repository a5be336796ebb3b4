#include "cuda_backend/weight_arena.h"

#include "base/checked.h"

namespace subbyte {
namespace {

constexpr uint64_t kAlignment = 256;

}  // namespace

int64_t WeightArena::aligned(int64_t bytes) {
  return static_cast<int64_t>(round_up(bytes, kAlignment));
}

Result<std::shared_ptr<const CudaBuffer>> WeightArena::allocate(int64_t bytes) {
  auto buffer = std::make_shared<CudaBuffer>();
  SUBBYTE_CHECK(buffer->grow(bytes));
  std::erase_if(allocations_, [](const auto& one) { return one.expired(); });
  allocations_.push_back(buffer);
  return std::shared_ptr<const CudaBuffer>(std::move(buffer));
}

Status WeightArena::reserve(int64_t bytes) {
  close();
  SUBBYTE_TRY(reserve_, allocate(bytes));
  return {};
}

void WeightArena::close() {
  reserve_ = nullptr;
  used_ = 0;
}

Result<DeviceBytes> WeightArena::take(int64_t bytes) {
  if (bytes == 0) return DeviceBytes();
  if (reserve_ != nullptr && aligned(bytes) <= reserve_->size() - used_) {
    std::byte* const data = reserve_->data() + used_;
    used_ += aligned(bytes);
    return DeviceBytes(reserve_, data, bytes);
  }
  SUBBYTE_TRY(auto own, allocate(aligned(bytes)));
  std::byte* const data = own->data();
  return DeviceBytes(std::move(own), data, bytes);
}

int64_t WeightArena::held() const {
  int64_t bytes = 0;
  for (const auto& one : allocations_) {
    if (const auto buffer = one.lock()) bytes += buffer->size();
  }
  return bytes;
}

}  // namespace subbyte
