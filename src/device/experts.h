#pragma once
// A mixture of experts on a GPU, from the logits of a router, or from experts that were chosen, to
// the result.

#include <memory>
#include <optional>
#include <vector>

#include "device/gpu.h"
#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/ops/route.h"
#include "matrix/matrix.h"
#include "subbyte/executor.h"
#include "subbyte/function_ref.h"

namespace subbyte::device {

/// One matrix of each expert, of one shape and format.
struct ExpertStack {
  MatrixView all;  // where they lie on the GPU, one below the other; all but the codebook
  int64_t experts = 0;
  /// The matrix of an expert in memory of the host, for formats that become others there.
  FunctionRef<Result<MatrixView>(int64_t expert)> on_host;
  /// Factors of an expert: of all its rows, and where rows of up have another one, of those.
  FunctionRef<double(int64_t expert)> factor;
  FunctionRef<std::optional<double>(int64_t expert)> up_factor;

  int64_t rows() const { return experts == 0 ? 0 : all.rows / experts; }  // of an expert
};

/// The packed matrices of all experts. Immutable.
class PackedExperts {
 public:
  /// Packs on the GPU, or what its kernels have in another format on the host. The stream is waited
  /// for. Codes: linear.unsupported, argument for experts that become other sizes, cuda.*.
  static Result<std::shared_ptr<const PackedExperts>> pack(const ExpertStack& stack,
                                                           gpu::RowOrder order, gpu::Number number,
                                                           const Gpu& gpu, Executor& host);

  int64_t bytes() const { return memory_.size(); }
  int64_t cols() const { return format_.cols; }
  bool has_large_m() const { return cuda::has_large_m(format_, number_, device_); }

  /// Launches the products of all routes; the call has all but the weights. Codes: cuda.*.
  Status multiply(cuda::ExpertsCall call, const cuda::ExpertTiles& tiles, const Gpu& gpu) const;

 private:
  PackedExperts() = default;
  Result<bool> pack_on_gpu(const ExpertStack& stack, gpu::RowOrder order, const Gpu& gpu);
  Status pack_by_host(const ExpertStack& stack, gpu::RowOrder order, const Gpu& gpu,
                      Executor& host);
  void add_gains(const ExpertStack& stack, int64_t expert, const gpu::PackedFormat& format);
  Status finish(const Gpu& gpu);

  cuda::Device device_;
  gpu::Number number_ = gpu::Number::kF16;
  gpu::PackedFormat format_;         // of an expert
  cuda::WeightArguments arguments_;  // of expert 0
  Buffer memory_;
  std::vector<float> gains_, up_gains_;
  Buffer gains_there_, up_gains_there_;
};

/// Operands of the GPU, contiguous, that have been checked.
struct Mixture {
  const void* x = nullptr;         // [tokens][hidden] of 16 bits
  void* out = nullptr;             // likewise
  const float* weights = nullptr;  // logits [tokens][experts], or weights [tokens][top_k] of
  const void* chosen = nullptr;    // experts that were chosen; nullptr: the logits choose
  bool chosen_is_64_bits = false;
  const void* gate_up_bias = nullptr;  // [experts][2 inner], of the type of x, or nullptr
  const void* down_bias = nullptr;     // [experts][hidden]
  int64_t tokens = 0;
  int64_t hidden = 0;  // in 8s
  int64_t inner = 0;   // in 8s
  int64_t experts = 0;
  int64_t top_k = 0;
  bool of_all = false;  // the softmax is one over all experts
  gpu::Number number = gpu::Number::kF16;
  SwiGLU swiglu;
};

/// Rows of tokens that chose an expert which there is not become NaN. Takes a workspace from the
/// memory of `gpu`, and does not wait. Codes: cuda.*.
Status run_mixture(const Mixture& mixture, const PackedExperts& gate_up, const PackedExperts& down,
                   const Gpu& gpu);

}  // namespace subbyte::device
