#pragma once
// Dense weights in the memory of a GPU, as they are stored: no kernel reads them packed.

#include <cuda_runtime_api.h>
#include <subbyte/subbyte.h>

#include "base/operands.h"
#include "c_interface/gpu_memory.h"
#include "matrix/matrix.h"

namespace subbyte::c {

class DenseOnGpu {
 public:
  /// Copies the codes of a dense matrix from the host or from that GPU; the stream is waited for.
  /// Codes: c.argument (an order of inputs), cuda.memory, cuda.copy.
  static Result<DenseOnGpu> create(const MatrixView& view, bool is_on_gpu, cudaStream_t stream);

  int64_t bytes() const { return bytes_; }
  /// Its canonical form, where it lies.
  MatrixView view() const;

  /// Bytes of the sums of a product of m rows, in float32.
  int64_t workspace_bytes(int64_t m) const { return 4 * m * rows_; }
  /// A product of 16-bit numbers, rounded once. Codes: cuda.launch.
  Status multiply(const subbyte_product& product, int64_t m, const std::byte* x, std::byte* y,
                  const std::byte* residual, bool gate_up_pairs, std::byte* workspace) const;
  Status dequantize(Element number, void* out, cudaStream_t stream) const;

 private:
  GpuBytes memory_;
  int64_t bytes_ = 0;
  Element element_ = Element::kF32;
  int64_t rows_ = 0;
  int64_t cols_ = 0;
  float gain_ = 1;
};

}  // namespace subbyte::c
