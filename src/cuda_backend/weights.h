#pragma once
// Weights in the memory of the GPU: packed for the kernels of kernels/cuda/linear.h, or dense.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cuda_backend/uploader.h"
#include "cuda_backend/weight_arena.h"
#include "device/plans.h"
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
  cuda::PackedFormat format = {};        // packed
  cuda::WeightArguments arguments = {};  // packed
  Element element = Element::kF32;       // dense
  std::shared_ptr<device::Plans> plans = std::make_shared<device::Plans>();
};

/// The numbers of an uploaded vector; nullptr: it has none.
const float* floats_of(const Vector& vector);

/// Weight in the form of this backend.
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
/// (kernels/gpu/supported_format.h). Returns before the GPU has done it, in the order of the
/// stream. Codes: linear.unsupported names what is supported; recast.*, cuda.memory, cuda.copy,
/// cuda.launch.
Result<CudaWeight> upload_weight(std::vector<Matrix> matrices, std::span<const float> bias,
                                 const WeightTarget& target);

/// Where a matrix of so many bytes is packed to.
using Allocate = std::function<Result<std::byte*>(int64_t bytes)>;

struct PackedOnGpu {
  cuda::PackedFormat format;
  cuda::WeightArguments arguments;
};

/// Matrices of one format and order of inputs, which gpu::support() has made, as one below the
/// other, on their way: from the host to staging memory, and from there to the packed form.
///
///   JoinedMatrices joined(matrices)          reads scales and zero points, by any thread
///   joined.stage_at(staging + ..., order)    where they go, and what they become
///   joined.add_pieces(...)                   what is to be copied there
///   joined.pack(to, target)
class JoinedMatrices {
 public:
  /// The bytes of the matrices must stay until they have been copied.
  explicit JoinedMatrices(std::span<const Matrix> matrices);
  JoinedMatrices(JoinedMatrices&&) = default;
  JoinedMatrices& operator=(JoinedMatrices&&) = default;

  /// Room that they need in staging memory.
  int64_t staged_bytes() const { return staged_bytes_; }
  /// `place` is a multiple of 256. Codes: linear.unsupported.
  Status stage_at(std::byte* place, cuda::RowOrder order);
  /// Appends the pieces that stage_at() has placed; `at` is from the begin of the copy to that
  /// place.
  void add_pieces(int64_t at, std::vector<UploadPiece>& pieces) const;
  const cuda::PackedFormat& format() const { return format_; }
  /// Enqueues packing to `to`, format().bytes. Their factors may differ, and the gain is that of
  /// the first. Code cuda.launch.
  Result<PackedOnGpu> pack(std::byte* to, const WeightTarget& target) const;

 private:
  struct Sections;
  Sections sections() const;

  std::vector<std::span<const std::byte>> codes_;  // of each
  std::vector<std::byte> scales_, zeros_;          // of more than one
  MatrixView on_host_;  // what the packed form is decided by: all but the codes
  MatrixView staged_;
  cuda::PackedFormat format_ = {};
  int64_t staged_bytes_ = 0;
};

/// Packs JoinedMatrices of `matrices`. Returns before the GPU has done it. Codes:
/// linear.unsupported, cuda.memory, cuda.copy, cuda.launch, and those of allocate.
Result<PackedOnGpu> pack_matrices(const std::vector<Matrix>& matrices, cuda::RowOrder order,
                                  const Allocate& allocate, const WeightTarget& target);

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
Result<DeviceBytes> upload_bias(std::span<const float> bias, bool is_packed,
                                const WeightTarget& target);

/// Floats as they are. Codes: cuda.memory, cuda.copy.
Result<DeviceBytes> upload_bytes(std::span<const std::byte> bytes, const WeightTarget& target);

/// The activation that the epilogue of gate and up computes.
constexpr cuda::Activation activation_of(Gate gate) {
  return gate == Gate::kGelu ? cuda::Activation::kGeGLU : cuda::Activation::kSwiGLU;
}

}  // namespace subbyte
