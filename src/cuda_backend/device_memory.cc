#include "cuda_backend/device_memory.h"

#include <cuda_runtime_api.h>

#include <atomic>
#include <string>
#include <utility>

namespace subbyte {
namespace {

std::atomic<uint64_t> buffer_epoch = 0;

}  // namespace

uint64_t CudaBuffer::epoch() {
  return buffer_epoch.load();
}

Error cuda_error(std::string_view code, std::string_view what, int error) {
  return {code, std::string(what) + ": " + cudaGetErrorString(static_cast<cudaError_t>(error))};
}

CudaBuffer::CudaBuffer(CudaBuffer&& other) noexcept
    : place_(other.place_),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

CudaBuffer& CudaBuffer::operator=(CudaBuffer&& other) noexcept {
  if (this == &other) return *this;
  release();
  place_ = other.place_;
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  return *this;
}

CudaBuffer::~CudaBuffer() {
  release();
}

void CudaBuffer::release() {
  if (data_ == nullptr) return;
  ++buffer_epoch;
  if (place_ == Place::kDevice) {
    cudaFree(data_);
  } else {
    cudaFreeHost(data_);
  }
  data_ = nullptr;
  size_ = 0;
}

Status CudaBuffer::grow(int64_t bytes) {
  if (bytes <= size_) return {};
  release();
  const bool on_device = place_ == Place::kDevice;
  void* memory = nullptr;
  const cudaError_t error =
      on_device ? cudaMalloc(&memory, bytes) : cudaHostAlloc(&memory, bytes, cudaHostAllocDefault);
  if (error != cudaSuccess) {
    cudaGetLastError();  // told here
    return cuda_error(
        "cuda.memory",
        std::to_string(bytes) + (on_device ? " bytes of GPU memory" : " pinned bytes"), error);
  }
  ++buffer_epoch;
  data_ = static_cast<std::byte*>(memory);
  size_ = bytes;
  return {};
}

}  // namespace subbyte
