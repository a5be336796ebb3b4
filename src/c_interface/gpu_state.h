#pragma once
// A packed matrix of a GPU, for the files that have its functions.

#include <array>
#include <mutex>
#include <optional>
#include <vector>

#include "c_interface/gpu.h"
#include "c_interface/gpu_dense.h"
#include "c_interface/gpu_memory.h"
#include "c_interface/gpu_staging.h"
#include "kernels/cuda/linear.h"

namespace subbyte::c {

/// All that a plan of a matrix depends on.
struct PlanKey {
  int64_t m = -1;
  gpu::Number number = gpu::Number::kF16;
  bool aligned = false;
  bool batch_invariant = false;
  bool operator==(const PlanKey&) const = default;
};

struct KeptPlan {
  PlanKey key;
  cuda::Plan plan;
};

struct GpuMatrix::State {
  int index = 0;
  cuda::Device device;
  MatrixView view;  // as the caller described it, without bytes
  gpu::PackedFormat format;
  double tensor_scale = 1;
  gpu::RowOrder row_order = gpu::RowOrder::kNatural;
  std::vector<float> codebook;      // of its own
  std::optional<DenseOnGpu> dense;  // instead of what is packed
  GpuBytes packed;
  std::array<cuda::WeightArguments, 2> arguments{};
  std::mutex mutex;             // of the plans
  std::vector<KeptPlan> plans;  // by a hash of their keys: planning takes longer than launching
  Workspaces workspaces;

  Result<cuda::Plan> plan_of(const PlanKey& key);
  Status run(const subbyte_product& product, int64_t m, const std::byte* x, std::byte* y,
             const std::byte* residual);
  /// Format and shape of the matrix that unpack() gives.
  MatrixView held() const;
  /// The canonical matrix; its order of inputs is where the packed one has it.
  Result<MatrixOnGpu> unpack(cudaStream_t stream) const;
};

}  // namespace subbyte::c
