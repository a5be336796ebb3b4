#include <string>

#include "c_interface/gpu_memory.h"
#include "gpu_memory.h"

namespace subbyte::python {
namespace {

/// Frees memory also while some stream is captured, which forbids it to its thread otherwise.
void free_on_gpu(void* memory) {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode));
  static_cast<void>(cudaFree(memory));
  static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode));
}

}  // namespace

Status check_gpu(int device) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    return c::gpu_error("cuda.device", "an array is in the memory of a GPU", error);
  }
  if (device >= 0 && device < count) return {};
  return Error{"cuda.device", "an array is in the memory of GPU " + std::to_string(device) +
                                  ", of which there are " + std::to_string(count) + ", from 0"};
}

bool is_captured(int device, void* stream) {
  const c::CurrentDevice current(device);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &status) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
  }
  return status != cudaStreamCaptureStatusNone;
}

Result<std::shared_ptr<void>> allocate_on_gpu(int device, int64_t bytes, void* stream) {
  if (is_captured(device, stream)) {
    return Error{"cuda.capture",
                 "the result cannot be allocated while its stream is captured: give out="};
  }
  const c::CurrentDevice current(device);
  SUBBYTE_CHECK(current.status());
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, static_cast<std::size_t>(bytes));
  if (error == cudaSuccess) return std::shared_ptr<void>(memory, &free_on_gpu);
  return c::gpu_error("cuda.memory", std::to_string(bytes) + " bytes of GPU memory", error);
}

Status put_in_order(int device, void* first, void* later) {
  const c::CurrentDevice current(device);
  SUBBYTE_CHECK(current.status());
  cudaEvent_t event = nullptr;
  cudaError_t error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  if (error == cudaSuccess) error = cudaEventRecord(event, static_cast<cudaStream_t>(first));
  if (error == cudaSuccess) error = cudaStreamWaitEvent(static_cast<cudaStream_t>(later), event, 0);
  if (event != nullptr) static_cast<void>(cudaEventDestroy(event));
  if (error == cudaSuccess) return {};
  return c::gpu_error("cuda.launch", "a stream that waits for another", error);
}

}  // namespace subbyte::python
