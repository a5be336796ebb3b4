#pragma once
// A GPU of NVIDIA as a machine that models run on. Between operations activations have 16 bits, f16
// or bf16; the residual stream, sums and logits are float32. docs/cuda_backend.md says more.

#include <memory>
#include <vector>

#include "base/host_device.h"
#include "exchange/exchange.h"
#include "ops/backend.h"

namespace subbyte {

struct CudaOptions {
  int index = 0;               // of the GPU, as the driver counts
  bool is_bf16 = false;        // activations; f16 rounds an eighth as much and ends at 65504
  bool mxfp8_experts = false;  // inputs of experts are rounded to MXFP8
  /// Inputs of many tokens beside weights in FP8 are rounded to E4M3 (kernels/cuda/w8a8.h).
  bool fp8_activations = false;
  int num_threads = 0;  // of the host, for work beside the operations; 0: all
  /// A token's results are the same bits however many tokens are computed with it.
  bool batch_invariant = false;
  /// Steps of at most so many single tokens run as one kernel, where there is one.
  int step_kernel_tokens = 8;
  /// Other steps of single tokens as graphs, where they repeat.
  bool step_graphs = true;
};

/// Codes: cuda.device, also for a GPU below compute capability 8.0; cuda.memory.
SUBBYTE_BY_NVCC Result<std::unique_ptr<Backend>> make_cuda_backend(const CudaOptions& options);

/// So many GPUs from `options.index` on as the ranks of a group (src/parallel/). Codes: also
/// cuda.peer_access where one cannot reach the memory of another.
SUBBYTE_BY_NVCC Result<std::vector<std::unique_ptr<Backend>>> make_cuda_ranks(
    const CudaOptions& options, int ranks);

/// The GPU of this process as one of the ranks, each of which is in a process of its own on this
/// host; all make theirs at once. Codes: also exchange.failed names a rank that has none.
SUBBYTE_BY_NVCC Result<std::unique_ptr<Backend>> make_cuda_rank(
    const CudaOptions& options, const std::shared_ptr<Exchange>& ranks);

}  // namespace subbyte
