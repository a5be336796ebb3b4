// What the plans need to know of a GPU, asked from the driver.

#include <cuda_runtime.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>

#include "kernels/cuda/linear.h"

namespace subbyte::cuda {

namespace {

/// Compiled as all kernels are.
__global__ void nothing() {}

constexpr int kAmpereSharedBytes = 163 * 1024;  // that a CTA can have on compute capability 8.0

/// What of a GPU's capability the kernels use: an older one's where only code or PTX of that was
/// made. Leaves the current device as it is.
Result<int> capability_of_kernels(int index) {
  int current = 0;
  cudaFuncAttributes attributes = {};
  cudaError_t error = cudaGetDevice(&current);
  // Going back makes a context on the other GPU, so nobody leaves who need not.
  if (error == cudaSuccess && current != index) error = cudaSetDevice(index);
  if (error == cudaSuccess) {
    error = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&nothing));
    if (current != index) cudaSetDevice(current);
  }
  if (error == cudaSuccess) return attributes.ptxVersion;
  cudaGetLastError();
  // Any call that is the first on a device takes some hundred MiB of its memory.
  const bool is_full = error == cudaErrorMemoryAllocation;
  return Error{"cuda.device", "device " + std::to_string(index) +
                                  (is_full ? ": too little of its memory is free to begin with: "
                                           : ": no kernels of this build run there: ") +
                                  cudaGetErrorString(error)};
}

Result<Device> ask(int index) {
  cudaDeviceProp properties;
  const cudaError_t error = cudaGetDeviceProperties(&properties, index);
  if (error != cudaSuccess) {
    return Error{"cuda.device",
                 "device " + std::to_string(index) + ": " + cudaGetErrorString(error)};
  }
  Device device;
  device.compute_capability = 10 * properties.major + properties.minor;
  if (device.compute_capability < 80) {
    return Error{"cuda.device", "device " + std::to_string(index) + " (" + properties.name +
                                    "): expected compute capability 8.0 or newer, found " +
                                    std::to_string(properties.major) + "." +
                                    std::to_string(properties.minor)};
  }
  SUBBYTE_TRY(const int capability, capability_of_kernels(index));
  device.compute_capability = std::min(device.compute_capability, capability);
  device.multiprocessors = properties.multiProcessorCount;
  device.shared_bytes = static_cast<int>(properties.sharedMemPerBlockOptin);
  // Kernels of Ampere are planned as there.
  if (device.compute_capability < 90) {
    device.shared_bytes = std::min(device.shared_bytes, kAmpereSharedBytes);
  }
  int kilohertz = 0;
  if (cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, index) == cudaSuccess) {
    device.clock_hz = kilohertz * 1e3;
  }
  int memory_kilohertz = 0;
  if (cudaDeviceGetAttribute(&memory_kilohertz, cudaDevAttrMemoryClockRate, index) == cudaSuccess &&
      memory_kilohertz > 0) {
    device.bytes_per_second = 0.93 * 2e3 * memory_kilohertz * (properties.memoryBusWidth / 8);
  }
  return device;
}

}  // namespace

Result<Device> query_device(int index) {
  static std::mutex mutex;
  static auto& known = *new std::map<int, Device>;
  const std::scoped_lock lock(mutex);
  const auto found = known.find(index);
  if (found != known.end()) return found->second;
  SUBBYTE_TRY(const Device device, ask(index));
  known.emplace(index, device);
  return device;
}

}  // namespace subbyte::cuda
