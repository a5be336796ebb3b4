#pragma once
// Weights of a model in the memory of the GPU.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "device/packed_matrix.h"
#include "ops/weights.h"

namespace subbyte {

/// Matrices whose outputs follow each other and that one product serves.
struct CudaMatrix {
  std::shared_ptr<const device::PackedMatrix> weights;
  gpu::Number number = gpu::Number::kF16;  // of activations
  /// Beside packed weights of the activations' type, beside dense ones float32. Empty: none.
  device::Buffer bias = {};

  int64_t rows() const { return weights->rows(); }
  int64_t cols() const { return weights->cols(); }
  bool is_dense() const { return weights->is_dense(); }
  const gpu::PackedFormat& format() const { return weights->format(); }  // packed
  const cuda::WeightArguments& arguments() const { return weights->arguments(number); }
};

/// Weight in the form of this backend.
struct CudaWeight {
  std::vector<CudaMatrix> parts;
};

inline const CudaWeight& cuda_weight(const Weight& weight) {
  return *static_cast<const CudaWeight*>(weight.storage.get());
}

/// Says whether a weight is one matrix that is not packed.
inline bool is_one_dense(const Weight& weight) {
  const std::vector<CudaMatrix>& parts = cuda_weight(weight).parts;
  return parts.size() == 1 && parts.front().is_dense();
}

/// The numbers of an uploaded vector; nullptr: it has none.
const float* floats_of(const Vector& vector);

/// Where weights go, and how they get there.
struct WeightTarget {
  device::Gpu gpu;  // with the memory of weights
  device::Uploader& uploader;
  gpu::Number number;
};

/// Two matrices of one format and as many rows may be gate and up: they are packed with their rows
/// side by side, which serves a gated product and any other. Formats without kernels become others
/// (kernels/gpu/supported_format.h). Returns before the GPU has done it, in the order of the
/// stream. Codes: linear.unsupported names what is supported; recast.*, cuda.memory, cuda.copy,
/// cuda.launch.
Result<CudaWeight> upload_weight(std::vector<Matrix> matrices, std::span<const float> bias,
                                 const WeightTarget& target);

/// As linear.unsupported where a format or a shape has no packed form.
Error unpackable(Error error);

/// For people: which formats are held as others.
class SupportNotes {
 public:
  void add(const std::vector<Matrix>& matrices);
  /// ", 3 matrices of u4 g24 scale f16 as f16"; empty when there are none.
  std::string text() const;

 private:
  std::map<std::string, int64_t> matrices_;
};

/// In the type that the products of packed weights, or of dense ones, add. Codes: cuda.memory,
/// cuda.copy.
Result<device::Buffer> upload_bias(std::span<const float> bias, bool is_packed,
                                   const WeightTarget& target);

/// Floats as they are. Codes: cuda.memory, cuda.copy.
Result<device::Buffer> upload_bytes(std::span<const std::byte> bytes, const WeightTarget& target);

/// The activation that the epilogue of gate and up computes.
constexpr cuda::Activation activation_of(Gate gate) {
  return gate == Gate::kGelu ? cuda::Activation::kGeGLU : cuda::Activation::kSwiGLU;
}

}  // namespace subbyte
