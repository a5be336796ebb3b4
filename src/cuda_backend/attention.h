#pragma once
// Positions and attention of a step: from the backend's operations to the kernels.

#include "cuda_backend/device_memory.h"
#include "cuda_backend/step.h"
#include "kernels/cuda/step/program.h"
#include "ops/backend.h"

namespace subbyte {

class CudaAttention {
 public:
  /// All must outlive it. `partials`: memory of attention of any kind.
  CudaAttention(cuda::Element element, CudaStep& step, CudaBuffer& partials, cuda::Stream stream)
      : element_(element), step_(step), partials_(partials), stream_(stream) {}

  /// A step, whose angles nobody knows.
  void begin() { angles_of_ = nullptr; }

  /// The angles of all rows, computed when a step first needs them. Codes: cuda.memory, cuda.copy.
  Status find_angles(const Rope& rope);

  /// rotate() and attend() as a part of a program, without result and sinks.
  cuda::StepAttention of_program(const Tensor& qkv, const HeadNorms& norms,
                                 const AttentionShape& shape, int64_t layer) const;

  /// See Backend::rotate_and_store() and attend(). Errors of launches are left to
  /// cudaGetLastError(). Codes: cuda.memory, cuda.copy.
  void rotate(const Tensor& qkv, const HeadNorms& norms, const AttentionShape& shape,
              int64_t layer);
  Status attend(const Tensor& y, const Tensor& qkv, const AttentionShape& shape, int64_t layer,
                const Vector& sinks);

 private:
  cuda::KvLayer cache(int64_t layer) const;

  cuda::Element element_;
  CudaStep& step_;
  CudaBuffer& partials_;
  cuda::Stream stream_;
  const Rope* angles_of_ = nullptr;  // in this step
  float* cos_ = nullptr;
  float* sin_ = nullptr;
};

}  // namespace subbyte
