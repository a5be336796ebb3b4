#pragma once
// Launches of the operations. Each may begin before the kernel before it on the stream has ended
// (programmatic dependent launch): every kernel waits for that one before it reads what a kernel of
// the step writes, and before it writes, so what has ended is known from kernel to kernel. Weights
// may be read before, which are there before the step.

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string>

#include "base/status.h"
#include "kernels/cuda/common/elements.h"
#include "kernels/cuda/common/ptx.cuh"

namespace subbyte::cuda {

/// In every operation before anything but weights is read or written.
__device__ __forceinline__ void begin_operation() {
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
}

struct Grid {
  dim3 ctas;
  int threads;
  int shared_bytes = 0;
  int cluster = 1;           // CTAs of a cluster, along x
  bool is_dependent = true;  // may begin before the kernel before it has ended
};

/// How much dynamic shared memory a kernel may have, device by device. One for each kernel.
class SharedMemoryLimit {
 public:
  /// Asks the driver once for each device and size larger than those before. False: refused.
  template <class Kernel>
  bool allow(Kernel* kernel, int bytes) {
    int device = 0;
    if (cudaGetDevice(&device) != cudaSuccess) return false;
    const bool is_known = device < kDevices;
    if (is_known && allowed_[device].load(std::memory_order_relaxed) >= bytes) return true;
    if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) !=
        cudaSuccess) {
      return false;
    }
    if (is_known) allowed_[device].store(bytes, std::memory_order_relaxed);
    return true;
  }

 private:
  static constexpr int kDevices = 64;
  std::array<std::atomic<int>, kDevices> allowed_ = {};
};

/// What cudaLaunchKernelEx() wants of a grid.
class LaunchConfig {
 public:
  LaunchConfig(const Grid& grid, Stream stream) {
    config_.gridDim = grid.ctas;
    config_.blockDim = dim3(static_cast<unsigned>(grid.threads));
    config_.dynamicSmemBytes = static_cast<std::size_t>(grid.shared_bytes);
    config_.stream = stream;
    config_.attrs = attributes_;
    if (grid.is_dependent) {
      cudaLaunchAttribute& attribute = attributes_[config_.numAttrs++];
      attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attribute.val.programmaticStreamSerializationAllowed = 1;
    }
    if (grid.cluster > 1) {
      cudaLaunchAttribute& attribute = attributes_[config_.numAttrs++];
      attribute.id = cudaLaunchAttributeClusterDimension;
      attribute.val.clusterDim = {static_cast<unsigned>(grid.cluster), 1, 1};
    }
  }
  LaunchConfig(const LaunchConfig&) = delete;  // it points into itself

  const cudaLaunchConfig_t* get() const { return &config_; }

 private:
  cudaLaunchConfig_t config_ = {};
  cudaLaunchAttribute attributes_[2] = {};
};

/// Errors are left to cudaGetLastError().
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const Grid& grid, Stream stream,
            const Arguments&... arguments) {
  const LaunchConfig config(grid, stream);
  cudaLaunchKernelEx(config.get(), kernel, static_cast<Parameters>(arguments)...);
}

/// The same of a kernel that may have more than 48 KiB of dynamic shared memory. False: refused.
template <auto* kKernel, class... Arguments>
bool launch_large(const Grid& grid, Stream stream, const Arguments&... arguments) {
  static SharedMemoryLimit limit;
  if (!limit.allow(kKernel, grid.shared_bytes)) return false;
  launch(kKernel, grid, stream, arguments...);
  return true;
}

/// CTAs of 256 threads for so many; where these are too many, each has more to do.
inline Grid grid_for(int64_t threads) {
  constexpr int kThreadsOfCta = 256;
  constexpr int64_t kMaxCtas = 1 << 16;
  const int64_t ctas = (threads + kThreadsOfCta - 1) / kThreadsOfCta;
  return {dim3(static_cast<unsigned>(std::clamp<int64_t>(ctas, 1, kMaxCtas))), kThreadsOfCta};
}

/// What launches of `what` left to cudaGetLastError(). Code cuda.launch.
inline Status launched(const char* what) {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return {};
  return Error{"cuda.launch", std::string(what) + ": " + cudaGetErrorString(error)};
}

}  // namespace subbyte::cuda
