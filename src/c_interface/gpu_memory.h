#pragma once
// Memory of GPUs for handles, and the current device for a while.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"

namespace subbyte::c {

/// Code and "what: unspecified launch failure"; the driver forgets the error.
Error gpu_error(std::string_view code, const std::string& what, cudaError_t error);

/// Makes a GPU the current one of this thread until it ends.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device);
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  ~CurrentDevice();

  Status status() const;

 private:
  int before_ = 0;
  int device_;
  cudaError_t error_;
};

/// Bytes of the GPU that was current when they were allocated.
class GpuBytes {
 public:
  GpuBytes() = default;
  GpuBytes(GpuBytes&& other) noexcept : data_(other.data_) { other.data_ = nullptr; }
  GpuBytes& operator=(GpuBytes&& other) noexcept;
  ~GpuBytes() { static_cast<void>(cudaFree(data_)); }

  /// Code cuda.memory.
  static Result<GpuBytes> allocate(int64_t bytes);

  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_ = nullptr;
};

/// Workspaces of a handle, one for each stream, since calls on two streams run at once. One that
/// became too small stays allocated as long as the handle: a graph may have its address.
class Workspaces {
 public:
  /// At least so many bytes for the calls of a stream; nullptr for 0. Allocates where there are
  /// fewer, which cannot be while the stream is captured. Codes: cuda.capture, cuda.memory.
  Result<std::byte*> find(int64_t bytes, cudaStream_t stream);

 private:
  struct Workspace {
    std::byte* data = nullptr;
    int64_t bytes = 0;
  };

  std::mutex mutex_;
  std::map<cudaStream_t, Workspace> of_streams_;
  std::vector<GpuBytes> all_;
};

}  // namespace subbyte::c
