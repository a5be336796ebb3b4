#pragma once
// Positions and attention of a step: from the operations to the kernels.

#include "cuda_backend/linear.h"
#include "cuda_backend/step.h"
#include "kernels/cuda/step/program.h"
#include "ops/step_plan.h"

namespace subbyte {

AttentionKind kind_of(const AttendOp& op);
/// Those of a plan, each once.
std::vector<AttentionKind> attention_kinds(const StepPlan& plan);

class CudaAttention {
 public:
  /// All must outlive it. `partials`: memory of attention of any kind.
  CudaAttention(Element element, CudaStep& step, CudaBuffer& partials, cuda::Stream stream)
      : element_(element), step_(step), partials_(partials), stream_(stream) {}

  /// cos and sin [rows][half] of each row. Codes: cuda.memory, cuda.copy.
  Status find_angles(float* cos, float* sin, const Rope& rope);

  /// RotateOp and AttendOp as a part of a program, without values but the angles. `turning`: the
  /// numbers of a head that turn.
  cuda::StepAttention of_program(const RotateOp& op, const float* cos, const float* sin,
                                 int64_t turning) const;

  static bool supports(const SelectOp& op);

  /// See RotateOp and AttendOp. Errors of launches are left to cudaGetLastError(). Codes:
  /// cuda.memory, cuda.copy.
  void rotate(const RotateOp& op, const CudaRows& qkv, const float* cos, const float* sin,
              int64_t turning);
  Status attend(const AttendOp& op, const CudaRows& y, const CudaRows& qkv, const float* selected);
  /// SelectOp. Codes: cuda.memory.
  Status select(const SelectOp& op, float* y, const CudaRows& q, const float* weights);
  /// Bytes that are enough for it, of a step of at most so many tokens, where page tables have at
  /// most so many positions.
  static int64_t select_bytes(int64_t tokens, int64_t positions);

 private:
  void rotate_latent(const RotateOp& op, const CudaRows& qkv, const float* cos, const float* sin,
                     int64_t turning);
  KvLayer cache(const CacheSlot& slot) const;

  Element element_;
  CudaStep& step_;
  CudaBuffer& partials_;
  cuda::Stream stream_;
};

}  // namespace subbyte
