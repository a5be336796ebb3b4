#include <cuda_runtime_api.h>

#include "cuda_backend/cuda_backend.h"
#include "cuda_backend/device_memory.h"

namespace subbyte {

Result<std::vector<Gpu>> list_gpus() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    cudaGetLastError();  // told here
    if (error == cudaErrorInsufficientDriver) {
      return Error{"cuda.device",
                   "expected an NVIDIA driver that knows CUDA 13, found none or an older one"};
    }
    if (error == cudaSuccess || error == cudaErrorNoDevice) {
      return Error{"cuda.device", "this machine has no NVIDIA GPU"};
    }
    return cuda_error("cuda.device", "the GPUs of this machine", error);
  }
  std::vector<Gpu> gpus;
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, index) != cudaSuccess) continue;
    gpus.push_back({index, properties.name, static_cast<int64_t>(properties.totalGlobalMem),
                    properties.major, properties.minor});
  }
  return gpus;
}

}  // namespace subbyte
