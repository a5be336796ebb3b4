#include "gpu_memory.h"

#include <string>

namespace subbyte::python {

Status check_gpu(int device) {
  const Result<int> count = device::count_gpus();
  if (!count.ok()) {
    return Error{count.error().code,
                 "an array is in the memory of a GPU: " + count.error().message};
  }
  if (device >= 0 && device < *count) return {};
  return Error{"cuda.device", "an array is in the memory of GPU " + std::to_string(device) +
                                  ", of which there are " + std::to_string(*count) + ", from 0"};
}

Result<device::Buffer> allocate_on_gpu(int device, int64_t bytes, void* stream) {
  SUBBYTE_TRY(const device::Gpu gpu, device::Gpu::use(device, stream));
  if (!gpu.is_captured()) return gpu.allocate(bytes);
  return Error{"cuda.capture",
               "the result cannot be allocated while its stream is captured: give out="};
}

}  // namespace subbyte::python
