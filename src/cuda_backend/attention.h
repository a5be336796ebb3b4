#pragma once
// Positions and attention of a step: from the operations to the kernels.

#include "cuda_backend/linear.h"
#include "cuda_backend/step.h"
#include "kernels/cuda/attention/rotate.h"
#include "kernels/cuda/step/program.h"
#include "ops/step_plan.h"

namespace subbyte {

/// Sizes of latents whose matrices have 16 bits, if they may be expanded, else none.
cuda::ExpandedSizes expanded_sizes(const LatentSizes& latent, bool are_16bit);
/// Says whether all matrices of latents of a plan have 16 bits, or their weights are not there.
bool has_16bit_latents(const StepPlan& plan);

AttentionKind kind_of(const AttendOp& op, bool are_16bit);
/// Those of a plan, each once.
std::vector<AttentionKind> attention_kinds(const StepPlan& plan);

class CudaAttention {
 public:
  /// All must outlive it. `partials`: memory of attention of any kind; `expansion`: of what is made
  /// of latents.
  CudaAttention(Element element, CudaStep& step, CudaBuffer& partials, CudaBuffer& expansion,
                cuda::Stream stream)
      : element_(element),
        step_(step),
        partials_(partials),
        expansion_(expansion),
        stream_(stream) {}

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
  Status attend(const AttendOp& op, const AttentionKind& kind, const CudaRows& y,
                const CudaRows& qkv, const float* selected);
  /// Both of single tokens, in one kernel; false: there is none. Code cuda.memory.
  Result<bool> attend_batch(const RotateOp& rotate, const AttendOp& op, const AttentionKind& kind,
                            const CudaRows& y, const CudaRows& qkv, const float* cos,
                            const float* sin, int64_t turning);
  /// SelectOp. Codes: cuda.memory.
  Status select(const SelectOp& op, float* y, const CudaRows& q, const float* weights);
  /// Bytes that are enough for it, of a step of at most so many tokens, where page tables have at
  /// most so many positions.
  static int64_t select_bytes(int64_t tokens, int64_t positions);

 private:
  void rotate_latent(const RotateOp& op, const CudaRows& qkv, const float* cos, const float* sin,
                     int64_t turning);
  cuda::RotateCall rotate_call(const RotateOp& op, const CudaRows& qkv, const float* cos,
                               const float* sin, int64_t turning) const;
  Result<cuda::AttentionCall> attention_call(const AttendOp& op, const StepTasks& tasks,
                                             const CudaRows& y, const CudaRows& qkv,
                                             const float* selected);
  Status attend_expanded(const AttendOp& op, const StepTasks& tasks,
                         const cuda::AttentionCall& attention, int64_t num_tokens);
  KvLayer cache(const CacheSlot& slot) const;

  Element element_;
  CudaStep& step_;
  CudaBuffer& partials_;
  CudaBuffer& expansion_;
  cuda::Stream stream_;
};

}  // namespace subbyte
