#pragma once
// What arrays in the memory of GPUs need of the driver: with_cuda.cc has it, and in builds without
// CUDA without_cuda.cc says so.

#include <cstdint>
#include <memory>

#include "base/status.h"

namespace subbyte::python {

/// Checks that this build has kernels for GPUs, and that there is one of that number. Code
/// cuda.device.
Status check_gpu(int device);

/// Memory of a GPU, which waits for that GPU when it is freed. Codes: cuda.device, cuda.memory,
/// cuda.capture while `stream` is captured.
Result<std::shared_ptr<void>> allocate_on_gpu(int device, int64_t bytes, void* stream);

/// Says whether work of `stream` is recorded instead of run.
bool is_captured(int device, void* stream);

/// Lets what comes to `later` wait for what `first` has. Code cuda.launch.
Status put_in_order(int device, void* first, void* later);

}  // namespace subbyte::python
