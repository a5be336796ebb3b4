#include "cuda_backend/device_memory.h"

#include <atomic>
#include <memory>
#include <utility>

namespace subbyte {
namespace {

std::atomic<uint64_t> epoch = 0;

class CountedMemory : public device::Memory {
 public:
  explicit CountedMemory(device::Memory& from) : from_(from) {}

  Result<device::Buffer> allocate(int64_t bytes, device::Stream stream) override {
    SUBBYTE_TRY(device::Buffer made, from_.allocate(bytes, stream));
    std::byte* const data = made.data();
    const int64_t size = made.size();
    ++epoch;
    const auto give_back = [](const device::Buffer* buffer) {
      ++epoch;
      delete buffer;
    };
    return device::Buffer(
        std::shared_ptr<const device::Buffer>(new device::Buffer(std::move(made)), give_back), data,
        size);
  }

 private:
  device::Memory& from_;
};

}  // namespace

uint64_t memory_epoch() {
  return epoch.load();
}

device::Memory& step_memory() {
  static CountedMemory memory(device::driver_memory());
  return memory;
}

device::Memory& pinned_step_memory() {
  static CountedMemory memory(device::pinned_memory());
  return memory;
}

}  // namespace subbyte
