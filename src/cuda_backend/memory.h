#pragma once
// The memory of a GPU as models and programs see it: what they will need, and what is held.

#include "cuda_backend/experts.h"
#include "cuda_backend/linear.h"
#include "cuda_backend/step.h"
#include "cuda_backend/step_programs.h"
#include "cuda_backend/uploader.h"
#include "cuda_backend/weight_arena.h"
#include "ops/machine_memory.h"

namespace subbyte {

/// What a step works in, in bytes. Upper bounds: what kernels really take depends on the batch.
struct CudaWorkspace {
  int64_t tensors = 0;   // of the step, with tokens, tasks, logits and choices
  int64_t products = 0;  // activations in the order of a kernel
  int64_t results = 0;   // of products that are gated or converted afterwards
  int64_t partials = 0;  // of attention
  int64_t programs = 0;  // of steps that are one kernel
  int64_t experts = 0;   // routes, and what is between the products

  int64_t sum() const { return tensors + products + results + partials + programs + experts; }
};

CudaWorkspace workspace_of(const StepShape& shape, bool batch_invariant,
                           const CudaMixture& mixture);

/// What matrices in the form of the kernels take, each with what its alignment costs. Code
/// linear.unsupported for experts in formats that have no packed kernels.
Result<int64_t> cuda_matrix_bytes(const MatrixShape& shape);

class CudaMemory : public MachineMemory {
 public:
  /// All must outlive it.
  CudaMemory(int gpu, WeightArena& arena, CudaUploader& uploader, CudaStep& step,
             CudaProducts& products, StepPrograms& programs, CudaMixture& mixture,
             CudaBuffer& partials)
      : gpu_(gpu),
        arena_(arena),
        uploader_(uploader),
        step_(step),
        products_(products),
        programs_(programs),
        mixture_(mixture),
        partials_(partials) {}

  std::string name() const override { return "GPU " + std::to_string(gpu_); }
  Result<int64_t> free_bytes() const override;
  Result<int64_t> matrix_bytes(const MatrixShape& shape) const override {
    return cuda_matrix_bytes(shape);
  }
  int64_t vector_bytes(int64_t size) const override { return WeightArena::aligned(4 * size); }
  int64_t workspace_bytes(const StepShape& shape) const override {
    return workspace_of(shape, step_.batch_invariant(), mixture_).sum();
  }
  Status reserve(const MemoryNeed& need, const StepShape& shape) override;
  Status finish_loading() override;
  MemoryNeed held() const override;

 private:
  Status check_free(const MemoryNeed& need) const;

  int gpu_;
  WeightArena& arena_;
  CudaUploader& uploader_;
  CudaStep& step_;
  CudaProducts& products_;
  StepPrograms& programs_;
  CudaMixture& mixture_;
  CudaBuffer& partials_;
};

}  // namespace subbyte
