#pragma once
// A mixture of experts on a GPU, from the logits of a router, or from experts that were chosen, to
// the result.

#include <memory>
#include <optional>
#include <vector>

#include "device/packed_matrix.h"
#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/experts/route.h"
#include "kernels/cuda/experts/router.h"
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

/// The packed matrices of all experts of a layer. Immutable.
class PackedExperts {
 public:
  /// Memory that holds them, or will after what was launched, `expert_bytes` apart; add() follows.
  PackedExperts(Buffer memory, int64_t count, int64_t expert_bytes, const gpu::PackedFormat& format,
                gpu::Number number, const cuda::Device& device, int index);

  /// Packs on the GPU, or what its kernels have in another format on the host. The stream is waited
  /// for. Codes: linear.unsupported, argument for a format that no kernel has, cuda.*.
  static Result<std::shared_ptr<const PackedExperts>> pack(const ExpertStack& stack,
                                                           gpu::RowOrder order, gpu::Number number,
                                                           const Gpu& gpu, Executor& host);
  /// Packs matrices of the host, of one format that gpu::support() has made, or dense; `parts` of
  /// them, one below the other, are an expert. They are let go as they are copied. Returns before
  /// the GPU has done it, in the order of the stream. Codes: linear.unsupported, cuda.*.
  static Result<std::shared_ptr<const PackedExperts>> upload(std::vector<Matrix>& matrices,
                                                             int64_t parts, gpu::RowOrder order,
                                                             gpu::Number number, const Gpu& gpu,
                                                             Uploader& uploader);

  int index() const { return index_; }  // of the GPU
  int64_t count() const { return count_; }
  int64_t rows() const { return format_.rows; }  // of an expert
  int64_t cols() const { return format_.cols; }
  int64_t bytes() const { return memory_.size(); }
  const gpu::PackedFormat& format() const { return format_; }            // of expert 0
  const cuda::WeightArguments& arguments() const { return arguments_; }  // the same
  double largest_scale() const { return largest_scale_; }                // of all
  bool has_large_m() const { return cuda::has_large_m(format_, number_, device_); }
  bool has_panel() const { return cuda::has_panel(format_, device_); }
  bool has_clusters() const { return device_.compute_capability == 90; }

  /// How CTAs divide those tiles. Code cuda.kernel.
  Result<cuda::ExpertPlan> plan(const cuda::ExpertTiles& tiles, bool batch_invariant) const {
    return cuda::plan_experts(format_, number_, tiles, device_, batch_invariant);
  }
  /// Sets the weights of a call.
  void set(cuda::ExpertsCall& call) const;

 private:
  class Packer;
  static Result<std::shared_ptr<PackedExperts>> pack_on_gpu(const ExpertStack& stack,
                                                            gpu::RowOrder order, gpu::Number number,
                                                            const Gpu& gpu);
  void add(int64_t expert, const gpu::PackedFormat& format, double factor,
           std::optional<double> up_factor);
  Status finish(const Gpu& gpu, Uploader& uploader);

  int index_;
  cuda::Device device_;
  gpu::Number number_;
  int64_t count_;
  int64_t expert_bytes_;
  gpu::PackedFormat format_;
  cuda::WeightArguments arguments_;
  double largest_scale_ = 0;
  Buffer memory_;
  std::vector<float> gains_, up_gains_;  // what experts do not have in common
  Buffer gains_there_, up_gains_there_;
};

/// Operands of the GPU, contiguous, that have been checked.
struct Mixture {
  const void* x = nullptr;         // [tokens][hidden] of 16 bits, hidden in 8s
  const float* weights = nullptr;  // logits [tokens][experts], or weights [tokens][top_k] of
  const void* chosen = nullptr;    // experts that were chosen; nullptr: the logits choose
  bool chosen_is_64_bits = false;
  /// Gives the choice where there are no weights: its route is set here.
  const cuda::RouterCall* router = nullptr;
  /// An expert that every token goes to, packed as the others are, with the gate of these; nullptr:
  /// none. Its weight is the sigmoid of `shared_gate` [tokens], or 1 where that is nullptr.
  const PackedMatrix* shared_gate_up = nullptr;
  const PackedMatrix* shared_down = nullptr;
  const float* shared_gate = nullptr;
  /// Where up is of another format than gate, which is gate_up alone then; nullptr: they are one.
  const PackedExperts* up = nullptr;
  const void* up_bias = nullptr;       // [experts][inner], and as many are in gate_up_bias then
  const void* gate_up_bias = nullptr;  // [experts][2 inner], of the type of x, or nullptr
  const void* down_bias = nullptr;     // [experts][hidden]
  int64_t tokens = 0;
  int64_t top_k = 0;
  Routing rule = {};               // of the logits
  const float* biases = nullptr;   // [experts], that only choose, or nullptr
  const float* factors = nullptr;  // the same, of the weights
  gpu::Number number = gpu::Number::kF16;
  /// Between the products; kNone: max(x, 0)^2 of experts without a gate.
  cuda::Activation activation = cuda::Activation::kClampedSwiGLU;
  SwiGLU swiglu;  // of kClampedSwiGLU
  bool batch_invariant = false;
  bool rounds_inputs = false;  // those of both products become MXFP8
};

/// Says whether products of many tokens whose inputs become MXFP8 run on the tensor cores for 8
/// bits.
bool is_w4a8(const PackedExperts& gate_up, const PackedExperts& down);

/// The results of all routes, which lie in `memory`, that of `gpu`. Rows of tokens that chose an
/// expert which there is not become NaN. Does not wait. Codes: cuda.*.
Result<cuda::RoutedSum> run_routes(const Mixture& mixture, const PackedExperts& gate_up,
                                   const PackedExperts& down, const Gpu& gpu, Buffer& memory);

/// Their sums, out [tokens][hidden], as x. Codes: cuda.*.
Status run_mixture(const Mixture& mixture, const PackedExperts& gate_up, const PackedExperts& down,
                   void* out, const Gpu& gpu);

}  // namespace subbyte::device
