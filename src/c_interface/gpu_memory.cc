#include "c_interface/gpu_memory.h"

#include <algorithm>

namespace subbyte::c {

Error gpu_error(std::string_view code, const std::string& what, cudaError_t error) {
  static_cast<void>(cudaGetLastError());  // told here
  return {code, what + ": " + cudaGetErrorString(error)};
}

CurrentDevice::CurrentDevice(int device) : device_(device) {
  int count = 0;
  error_ = cudaGetDeviceCount(&count);
  // A device that is not there is not set: tools that watch the driver would count an error.
  if (error_ == cudaSuccess && (device < 0 || device >= count)) error_ = cudaErrorInvalidDevice;
  if (error_ == cudaSuccess) error_ = cudaGetDevice(&before_);
  if (error_ == cudaSuccess && before_ != device) error_ = cudaSetDevice(device);
}

CurrentDevice::~CurrentDevice() {
  if (error_ == cudaSuccess && before_ != device_) static_cast<void>(cudaSetDevice(before_));
}

Status CurrentDevice::status() const {
  if (error_ == cudaSuccess) return {};
  return gpu_error("cuda.device", "device " + std::to_string(device_), error_);
}

GpuBytes& GpuBytes::operator=(GpuBytes&& other) noexcept {
  std::swap(data_, other.data_);
  return *this;
}

Result<GpuBytes> GpuBytes::allocate(int64_t bytes) {
  GpuBytes made;
  if (bytes == 0) return made;
  const cudaError_t error = cudaMalloc(&made.data_, static_cast<std::size_t>(bytes));
  if (error == cudaSuccess) return made;
  made.data_ = nullptr;
  return gpu_error("cuda.memory", std::to_string(bytes) + " bytes of GPU memory", error);
}

Result<std::byte*> Workspaces::find(int64_t bytes, cudaStream_t stream) {
  if (bytes == 0) return nullptr;
  const std::scoped_lock lock(mutex_);
  Workspace& workspace = of_streams_[stream];
  if (workspace.bytes >= bytes) return workspace.data;
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream, &capture) != cudaSuccess) static_cast<void>(cudaGetLastError());
  if (capture != cudaStreamCaptureStatusNone) {
    return Error{"cuda.capture", "this call needs " + std::to_string(bytes) +
                                     " bytes of workspace, which cannot be allocated while its "
                                     "stream is captured: reserve them before, or make the call "
                                     "once before the capture"};
  }
  const int64_t size = std::max(bytes, 2 * workspace.bytes);
  SUBBYTE_TRY(GpuBytes made, GpuBytes::allocate(size));
  workspace = {made.data(), size};
  all_.push_back(std::move(made));
  return workspace.data;
}

}  // namespace subbyte::c
