#pragma once
// Ranks of tensor parallelism as one backend: several in this process, or one in each of those that
// mpirun has started.

#include <memory>
#include <optional>

#include "cuda_backend/cuda_backend.h"
#include "exchange/mpi_exchange.h"
#include "kernels/cpu/execution.h"
#include "ops/backend.h"
#include "subbyte/device.h"

namespace subbyte {

/// The place among several processes of mpirun; nullopt: there are no others.
std::optional<MpiPlace> processes();

/// Codes: device.ranks for less than 1 rank or more than 64, options that ranks do not have, or
/// another number than mpirun has started.
Status check_ranks(const DeviceOptions& options);

/// In one process the threads of `options` are divided among them; each has one at least. Codes:
/// those of make_cpu_backend, exchange.mpi.
Result<std::unique_ptr<Backend>> make_cpu_ranks(const ExecutionOptions& options, int ranks);

/// So many GPUs from `options.index` on. Codes: those of make_cuda_ranks.
Result<std::unique_ptr<Backend>> make_gpu_ranks(const CudaOptions& options, int ranks);

}  // namespace subbyte
