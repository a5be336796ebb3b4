#pragma once
// What arrays in the memory of GPUs need of the driver.

#include "device/gpu.h"

namespace subbyte::python {

/// Checks that this build has kernels for GPUs, and that there is one of that number. Code
/// cuda.device.
Status check_gpu(int device);

/// Memory of a GPU for a result. Codes: cuda.device, cuda.memory, cuda.capture while `stream` is
/// captured.
Result<device::Buffer> allocate_on_gpu(int device, int64_t bytes, void* stream);

}  // namespace subbyte::python
