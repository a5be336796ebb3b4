#pragma once
// Stages of a pipeline as one backend: groups of the CPU's threads, GPUs, or the CPU and a GPU
// after it.

#include <memory>

#include "cuda_backend/cuda_backend.h"
#include "kernels/cpu/execution.h"
#include "ops/backend.h"
#include "subbyte/device.h"

namespace subbyte {

/// check_divisions(), and the number of stages. Code device.stages (members.h).
Status check_stages(const DeviceOptions& options);

/// The threads of `options` are divided among so many stages; each has one at least. Under mpirun
/// each process is a stage. Codes: those of make_cpu_backend, exchange.mpi.
Result<std::unique_ptr<Backend>> make_cpu_stages(const ExecutionOptions& options, int stages);

/// So many GPUs from `options.index` on, which need not reach the memory of each other. Codes:
/// those of make_cuda_backend.
Result<std::unique_ptr<Backend>> make_gpu_stages(const CudaOptions& options, int stages);

/// The last `gpu_layers` layers on a GPU (DeviceOptions), the head among them, and those before on
/// the CPU. Codes: those of make_cpu_backend and make_cuda_backend.
Result<std::unique_ptr<Backend>> make_cpu_and_gpu(const ExecutionOptions& cpu,
                                                  const CudaOptions& gpu, int gpu_layers);

}  // namespace subbyte
