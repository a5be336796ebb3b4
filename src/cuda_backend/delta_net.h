#pragma once
// Gated delta nets of a step: from the operation to the kernels.

#include "cuda_backend/linear.h"
#include "cuda_backend/step.h"
#include "kernels/cuda/delta_net/delta_net.h"
#include "ops/machine_memory.h"
#include "ops/step_plan.h"

namespace subbyte {

class CudaDeltaNets {
 public:
  /// `step` must outlive it.
  CudaDeltaNets(const cuda::Device& device, Element element, const CudaStep& step,
                cuda::Stream stream)
      : is_recurrent_(step.batch_invariant() || device.shared_bytes < cuda::kDeltaNetChunkBytes),
        element_(element),
        step_(step),
        stream_(stream) {}

  /// Checks that there are kernels for the shape. Code linear.unsupported.
  static Status check(const DeltaNetShape& shape);

  /// Says whether run() computes b and a of `rows` single tokens, by this product.
  bool serves(const DeltaNetOp& op, const cuda::DeltaNetGateProduct& product, int64_t rows) const;

  /// See DeltaNetOp. `product`, which serves() has taken, gives `ba`, if it has weights. Errors of
  /// launches are left to cudaGetLastError(). Code cuda.memory.
  Status run(const DeltaNetOp& op, const CudaRows& y, const void* qkvz, const void* ba,
             const cuda::DeltaNetGateProduct& product = {});

  /// The operation without what it reads, gives, and has of states in this step.
  cuda::DeltaNetCall of_program(const DeltaNetOp& op) const;

  /// Memory that steps of up to that size work in.
  int64_t memory_bytes(const DeltaNetShape& shape, const StepSize& size) const;
  /// Code cuda.memory.
  Status reserve(int64_t bytes) { return scratch_.grow(bytes); }
  int64_t device_bytes() const { return scratch_.size(); }

 private:
  bool is_recurrent_;
  Element element_;
  const CudaStep& step_;
  cuda::Stream stream_;
  CudaBuffer scratch_;
};

}  // namespace subbyte
