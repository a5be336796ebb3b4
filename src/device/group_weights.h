#pragma once
// Weights of FlashInfer's group GEMM (group_gemm/group_gemm.h) in the form of a GPU's kernels.

#include <memory>

#include "device/gpu.h"
#include "kernels/cuda/group_gemm/group_gemm.h"

namespace subbyte::device {

/// Immutable: threads and streams may share one.
class GroupWeights {
 public:
  /// Packs weights and scales of that GPU; the stream is waited for. Codes: those of
  /// cuda::GroupGemm, cuda.*.
  static Result<std::shared_ptr<const GroupWeights>> pack(const cuda::GroupGemmShape& shape,
                                                          const void* b, const void* b_scale,
                                                          const Gpu& gpu);

  int index() const { return index_; }  // of the GPU
  int64_t bytes() const { return memory_.size(); }

  /// Sets the weights of the call, which has all other operands, and runs it with a workspace of
  /// the memory of `gpu`. Does not wait. Codes: those of cuda::GroupGemm::run(), group_gemm.m.
  Status run(cuda::GroupGemmCall call, const Gpu& gpu) const;
  /// Asks the memory of `gpu` for what a call of m rows will ask for.
  Status reserve(int64_t m, const Gpu& gpu) const;

 private:
  GroupWeights(int index, const cuda::GroupGemm& gemm, Buffer memory)
      : index_(index), gemm_(gemm), memory_(std::move(memory)) {}

  int index_;
  cuda::GroupGemm gemm_;
  Buffer memory_;
};

}  // namespace subbyte::device
