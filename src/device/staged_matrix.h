#pragma once
// Canonical matrices in the memory of a GPU on their way to the packed form.

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "device/gpu.h"
#include "kernels/gpu/packed_weights.h"
#include "matrix/matrix.h"

namespace subbyte::device {

/// A canonical matrix where a caller has it: rows may be apart, and inputs may say their groups.
struct StridedMatrix {
  MatrixView view;                 // spans as if rows followed each other
  int64_t strides[3] = {0, 0, 0};  // bytes, of codes, scales and zeros; 0: rows follow each other
  const int32_t* group_indices = nullptr;  // of each input, instead of an order
};

/// A canonical matrix of which all spans but the codebook lead to memory of a GPU: the caller's, or
/// buffers of its own. Each function is launches on the stream; those that wait for it say so.
class StagedMatrix {
 public:
  /// The matrix of a caller on the GPU: rows that are apart are brought together, and inputs with
  /// group_indices are sorted, for which the stream is waited for. Codes: argument, cuda.*.
  static Result<StagedMatrix> gather(const StridedMatrix& from, const Gpu& gpu);
  /// The canonical form of packed bytes. Code cuda.*.
  static Result<StagedMatrix> unpack(const std::byte* packed, const gpu::PackedFormat& format,
                                     const MatrixView& shape, const Gpu& gpu);
  /// A matrix of buffers that stay.
  static StagedMatrix of(const MatrixView& view);

  const MatrixView& view() const { return view_; }
  /// One of `parts` matrices of as many rows each, which follow each other.
  MatrixView part(int64_t index, int64_t parts) const;

  /// Finds what packed_format() asks of a matrix with scales; waits. Codes: argument for an order
  /// that has not every input once, cuda.*.
  Result<gpu::PackedFacts> find_facts(const Gpu& gpu) const;

  /// Says whether support() makes of it what gpu::support() does on the host.
  bool can_be_supported() const;
  /// The matrix as gpu::supported_format() says; waits where it becomes dense. Codes: cuda.*.
  Status support(const Gpu& gpu);
  /// A copy on the host; waits. Code cuda.copy.
  Result<Matrix> to_host(const Gpu& gpu) const;

 private:
  Result<std::byte*> allocate(int64_t bytes, const Gpu& gpu);
  Status gather_rows(std::span<const std::byte>& part, int64_t stride, const Gpu& gpu);
  Status sort_inputs(const int32_t* group_indices, const Gpu& gpu);
  Status widen(const WeightFormat& wide, const Gpu& gpu);
  Status regroup(const WeightFormat& regrouped, const Gpu& gpu);
  Status make_dense(const Gpu& gpu);

  MatrixView view_;
  std::vector<Buffer> kept_;
};

}  // namespace subbyte::device
