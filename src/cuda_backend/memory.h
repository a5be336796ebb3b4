#pragma once
// The memory of a GPU as models and programs see it: what they will need, and what is held.

#include "cuda_backend/step_runner.h"
#include "cuda_backend/weight_arena.h"
#include "cuda_backend/weight_bytes.h"
#include "ops/machine_memory.h"

namespace subbyte {

class CudaMemory : public MachineMemory {
 public:
  /// All must outlive it.
  CudaMemory(int gpu, cuda::Stream stream, WeightArena& arena, device::Uploader& uploader,
             CudaStepRunner& runner)
      : gpu_(gpu), stream_(stream), arena_(arena), uploader_(uploader), runner_(runner) {}

  std::string name() const override { return "GPU " + std::to_string(gpu_); }
  Result<int64_t> free_bytes() const override;
  Result<int64_t> matrix_bytes(const MatrixShape& shape) const override {
    return cuda_matrix_bytes(shape);
  }
  int64_t vector_bytes(int64_t size) const override { return device::aligned(4 * size); }
  int64_t workspace_bytes(const StepPlan& plan, const StepSize& size) const override {
    return runner_.workspace(plan, size).sum();
  }
  Status reserve(const MemoryNeed& need, const StepPlan& plan, const StepSize& size) override;
  Status finish_loading() override;
  MemoryNeed held() const override;

 private:
  Status check_free(const MemoryNeed& need) const;

  int gpu_;
  cuda::Stream stream_;
  WeightArena& arena_;
  device::Uploader& uploader_;
  CudaStepRunner& runner_;
};

}  // namespace subbyte
