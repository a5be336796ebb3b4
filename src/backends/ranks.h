#pragma once
// Ranks of tensor parallelism as one backend: several in this process, or one in each of those that
// mpirun has started.

#include <memory>

#include "cuda_backend/cuda_backend.h"
#include "exchange/exchange.h"
#include "kernels/cpu/execution.h"
#include "ops/backend.h"
#include "subbyte/device.h"

namespace subbyte {

/// Code device.ranks (members.h).
Status check_ranks(const DeviceOptions& options);

/// In one process the threads of `options` are divided among them; each has one at least. Codes:
/// those of make_cpu_backend, exchange.mpi.
Result<std::unique_ptr<Backend>> make_cpu_ranks(const ExecutionOptions& options, int ranks);

/// `options`, but for what only the first rank knows, as it has the model: whether activations are
/// bf16 (with_wide_activations()); and for what all ranks must do alike: how steps run. All ranks
/// call it. Codes: those of Exchange.
Result<CudaOptions> as_first_rank(Exchange& exchange, CudaOptions options);

/// So many GPUs from `options.index` on; under mpirun that of this process. Codes: those of
/// make_cuda_ranks and make_cuda_rank, exchange.mpi.
Result<std::unique_ptr<Backend>> make_gpu_ranks(const CudaOptions& options, int ranks);

}  // namespace subbyte
