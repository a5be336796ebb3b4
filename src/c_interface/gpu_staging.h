#pragma once
// Canonical matrices in the memory of a GPU on their way to the packed form.

#include <cuda_runtime_api.h>

#include <vector>

#include "base/status.h"
#include "c_interface/gpu_memory.h"
#include "c_interface/weights.h"
#include "kernels/gpu/packed_weights.h"
#include "matrix/matrix.h"

namespace subbyte::c {

/// A canonical matrix of which all spans but the codebook lead to memory of the current GPU: the
/// caller's, or buffers of its own.
class MatrixOnGpu {
 public:
  /// A copy of a matrix of the host. Codes: cuda.memory, cuda.copy.
  static Result<MatrixOnGpu> copy(const MatrixView& host, cudaStream_t stream);
  /// The matrix of a description on the GPU: rows that are apart are brought together, and inputs
  /// with group_indices are sorted. Codes: c.argument, cuda.*.
  static Result<MatrixOnGpu> gather(const Description& from, cudaStream_t stream);

  /// A matrix of buffers that stay.
  static MatrixOnGpu of(const MatrixView& view);

  const MatrixView& view() const { return view_; }
  void set_view(const MatrixView& view) { view_ = view; }
  /// A buffer that stays as long as this. Code cuda.memory.
  Result<std::byte*> allocate(int64_t bytes);

  /// Finds what packed_format() asks of a matrix with scales. Codes: c.argument for an order that
  /// has not every input once, cuda.*.
  Result<gpu::PackedFacts> find_facts(cudaStream_t stream) const;

  /// Says whether support() makes of it what gpu::support() does on the host.
  bool can_be_supported() const;
  /// The matrix as gpu::supported_format() says. Codes: cuda.*.
  Status support(cudaStream_t stream);

 private:
  Status stage(std::span<const std::byte>& part, cudaStream_t stream);
  Status gather_rows(std::span<const std::byte>& part, int64_t stride, cudaStream_t stream);
  Status sort_inputs(const int32_t* group_indices, cudaStream_t stream);
  Status widen(const WeightFormat& wide, cudaStream_t stream);
  Status regroup(const WeightFormat& regrouped, cudaStream_t stream);
  Status make_dense(cudaStream_t stream);

  MatrixView view_;
  std::vector<GpuBytes> kept_;
};

}  // namespace subbyte::c
