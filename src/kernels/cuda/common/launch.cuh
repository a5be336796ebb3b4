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
  int cluster = 1;  // CTAs of a cluster, along x
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

/// Errors are left to cudaGetLastError().
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const Grid& grid, Stream stream,
            const Arguments&... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid.ctas;
  config.blockDim = dim3(static_cast<unsigned>(grid.threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(grid.shared_bytes);
  config.stream = stream;
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {static_cast<unsigned>(grid.cluster), 1, 1};
  config.attrs = attributes;
  config.numAttrs = grid.cluster > 1 ? 2 : 1;
  cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
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
