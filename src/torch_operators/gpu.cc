#include "torch_operators/gpu.h"

#include <array>
#include <memory>

namespace subbyte::torch_operators {
namespace {

constexpr int kMaxGpus = 64;

/// torch's caching allocator, in whose order of streams memory is given back.
class TorchMemory : public device::Memory {
 public:
  void set(int index) { index_ = index; }

  Result<device::Buffer> allocate(int64_t bytes, device::Stream) override {
    if (bytes == 0) return device::Buffer();
    const int64_t stride = 1;
    TensorHandle handle = nullptr;
    check(functions().aoti_torch_empty_strided(1, &bytes, &stride, numbers().u8, numbers().cuda,
                                               index_, &handle),
          "empty_strided");
    std::shared_ptr<const void> owner(handle, [](const void* held) {
      functions().aoti_torch_delete_tensor_object(
          static_cast<TensorHandle>(const_cast<void*>(held)));
    });
    void* data = nullptr;
    check(functions().aoti_torch_get_data_ptr(handle, &data), "get_data_ptr");
    return device::Buffer(std::move(owner), static_cast<std::byte*>(data), bytes);
  }

 private:
  int index_ = 0;
};

/// Never destroyed: torch calls as long as the process lives.
TorchMemory& memory_of(int index) {
  static auto& all = *[] {
    auto* const made = new std::array<TorchMemory, kMaxGpus>;
    for (int i = 0; i < kMaxGpus; ++i) (*made)[static_cast<std::size_t>(i)].set(i);
    return made;
  }();
  return all.at(static_cast<std::size_t>(index));
}

Tensor copy_of(const Tensor& tensor, int32_t dtype) {
  Tensor copy = Tensor::empty(tensor.sizes(), dtype, tensor);
  check(functions().aoti_torch_copy_(copy.handle(), tensor.handle(), 0), "copy_");
  return copy;
}

}  // namespace

Result<device::Gpu> gpu_of(const Tensor& tensor) {
  const int index = tensor.device().index;
  void* stream = nullptr;
  check(functions().aoti_torch_get_current_cuda_stream(index, &stream), "get_current_cuda_stream");
  return device::Gpu::use(index, stream, memory_of(index));
}

bool is_captured(const Tensor& tensor) {
  const Result<device::Gpu> gpu = gpu_of(tensor);
  return gpu.ok() && gpu->is_captured();
}

Tensor as_type(const Tensor& tensor, int32_t dtype) {
  return tensor.dtype() == dtype ? tensor.share() : copy_of(tensor, dtype);
}

Tensor aligned(const Tensor& tensor) {
  const bool is_aligned = reinterpret_cast<uintptr_t>(tensor.data()) % 16 == 0;
  return is_aligned ? tensor.share() : copy_of(tensor, tensor.dtype());
}

}  // namespace subbyte::torch_operators
