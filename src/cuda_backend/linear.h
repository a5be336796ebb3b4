#pragma once
// y = W x + b for every weight that was uploaded.

#include "cuda_backend/device_memory.h"
#include "cuda_backend/weights.h"

namespace subbyte {

/// Rows of 16-bit activations.
struct CudaRows {
  void* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
};

struct ProductOptions {
  bool batch_invariant = false;
  bool fp8_activations = false;  // those of many tokens beside weights in FP8
};

/// The products of a backend, with the memory that they work in.
class CudaProducts {
 public:
  CudaProducts(gpu::Number number, const ProductOptions& options, cuda::Stream stream)
      : number_(number), options_(options), stream_(stream) {}

  /// Checks that there are kernels for the weight. Code linear.unsupported.
  Status check(const CudaWeight& weight) const;

  /// The outputs of all parts side by side in the rows of y. Codes: those of
  /// device::PackedMatrix::multiply(), cuda.memory.
  Status multiply(const CudaRows& y, const CudaRows& x, const CudaWeight& weight);
  /// y = act(gate) * up, the two halves of the outputs.
  Status multiply_gated(const CudaRows& y, const CudaRows& x, const CudaWeight& gate_up, Gate gate);
  /// The outputs as floats, [x.rows][outputs].
  Status multiply_to_floats(float* y, const CudaRows& x, const CudaWeight& weight);

  /// Memory to work in, so that products of that size allocate nothing. Code cuda.memory.
  Status reserve(int64_t workspace_bytes, int64_t results_bytes);
  int64_t device_bytes() const { return workspace_.size() + results_.size(); }

 private:
  device::Product product(const CudaMatrix& matrix) const;
  Status multiply(device::Product product, const CudaRows& x, const CudaMatrix& matrix);
  Format format() const { return number_ == gpu::Number::kF16 ? Format::kF16 : Format::kBF16; }

  gpu::Number number_;
  ProductOptions options_;
  cuda::Stream stream_;
  OneBuffer workspace_;
  CudaBuffer results_;  // what is gated or converted afterwards
};

}  // namespace subbyte
