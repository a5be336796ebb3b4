#pragma once
// Weights in the memory of the GPU: packed for the kernels of kernels/cuda/linear.h, or dense.

#include <unordered_map>
#include <vector>

#include "cuda_backend/device_memory.h"
#include "kernels/cuda/linear.h"
#include "kernels/cuda/ops/elements.h"
#include "matrix/matrix.h"

namespace subbyte {

/// Matrices whose outputs follow each other and that one product serves.
struct CudaMatrix {
  int64_t rows = 0;
  int64_t cols = 0;
  CudaBuffer memory;
  /// Packed: of the activations' type. Dense: float32. Empty: none.
  CudaBuffer bias;
  bool is_packed = false;
  cuda::PackedFormat format = {};               // packed
  cuda::WeightArguments arguments = {};         // packed
  cuda::Element element = cuda::Element::kF32;  // dense
  /// By tokens: planning takes longer than launching.
  mutable std::unordered_map<int64_t, cuda::Plan> plans = {};
};

/// What a Weight is here.
struct CudaWeight {
  std::vector<CudaMatrix> parts;
};

/// Two matrices of one format and as many rows may be gate and up: they are packed with their rows
/// side by side, which serves a gated product and any other. Codes: linear.unsupported names what
/// is supported; cuda.memory, cuda.copy, cuda.launch.
Result<CudaWeight> upload_weight(std::vector<Matrix> matrices, const std::vector<float>& bias,
                                 cuda::Number number);

}  // namespace subbyte
