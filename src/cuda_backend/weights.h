#pragma once
// Weights in the memory of the GPU: packed for the kernels of kernels/cuda/linear.h, or dense.

#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "cuda_backend/uploader.h"
#include "cuda_backend/weight_arena.h"
#include "kernels/cuda/linear.h"
#include "kernels/cuda/ops/elements.h"
#include "matrix/matrix.h"
#include "ops/weights.h"

namespace subbyte {

/// Matrices whose outputs follow each other and that one product serves.
struct CudaMatrix {
  int64_t rows = 0;
  int64_t cols = 0;
  DeviceBytes memory;
  /// Packed: of the activations' type. Dense: float32. Empty: none.
  DeviceBytes bias;
  bool is_packed = false;
  cuda::PackedFormat format = {};               // packed
  cuda::WeightArguments arguments = {};         // packed
  cuda::Element element = cuda::Element::kF32;  // dense
  /// By tokens: planning takes longer than launching.
  mutable std::unordered_map<int64_t, cuda::Plan> plans = {};
};

/// The numbers of an uploaded vector; nullptr: it has none.
const float* floats_of(const Vector& vector);

/// What a Weight is here.
struct CudaWeight {
  std::vector<CudaMatrix> parts;
};

/// Where weights go, and how they get there.
struct WeightTarget {
  WeightArena& arena;
  CudaUploader& uploader;
  Executor& host;
  cuda::Number number;
};

/// Two matrices of one format and as many rows may be gate and up: they are packed with their rows
/// side by side, which serves a gated product and any other. Formats without kernels become others
/// (kernels/gpu/served_format.h). Returns before the GPU has done it, in the order of the stream.
/// Codes: linear.unsupported names what is supported; recast.*, cuda.memory, cuda.copy,
/// cuda.launch.
Result<CudaWeight> upload_weight(std::vector<Matrix> matrices, std::span<const float> bias,
                                 const WeightTarget& target);

/// Where a matrix of so many bytes is packed to.
using TakeRoom = std::function<Result<std::byte*>(int64_t bytes)>;

struct PackedOnGpu {
  cuda::PackedFormat format;
  cuda::WeightArguments arguments;
};

/// Packs matrices of one format and order of inputs, which gpu::serve() has made, one below the
/// other; their factors may differ, and the gain is that of the first. Returns before the GPU has
/// done it. Codes: linear.unsupported, cuda.memory, cuda.copy, cuda.launch, and those of take_room.
Result<PackedOnGpu> pack_matrices(const std::vector<Matrix>& matrices, cuda::RowOrder order,
                                  const TakeRoom& take_room, const WeightTarget& target);

/// For people: which formats are held as others.
class ServedNotes {
 public:
  void add(const std::vector<Matrix>& matrices);
  /// ", 3 matrices of u4 g24 scale f16 as f16"; empty when there are none.
  std::string text() const;

 private:
  std::map<std::string, int64_t> matrices_;
};

/// In the type that the products of packed weights, or of dense ones, add. Codes: cuda.memory,
/// cuda.copy.
Result<DeviceBytes> upload_bias(std::span<const float> bias, bool is_packed,
                                const WeightTarget& target);

/// Floats as they are. Codes: cuda.memory, cuda.copy.
Result<DeviceBytes> upload_bytes(std::span<const std::byte> bytes, const WeightTarget& target);

/// What the epilogue of gate and up computes.
constexpr cuda::Activation activation_of(Gate gate) {
  return gate == Gate::kGelu ? cuda::Activation::kGeGLU : cuda::Activation::kSwiGLU;
}

}  // namespace subbyte
