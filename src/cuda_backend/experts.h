#pragma once
// Mixtures of experts: their weights on the GPU, and the operation.

#include "cuda_backend/linear.h"
#include "device/experts.h"
#include "ops/machine_memory.h"
#include "ops/step_plan.h"

namespace subbyte {

/// A matrix of each expert of a layer.
struct CudaExpertMatrices {
  std::shared_ptr<const device::PackedExperts> weights;
  device::Buffer bias;  // of the activations' type
};

/// An expert of a layer that every token goes to, as matrices of its own.
struct CudaSharedExpert {
  const CudaMatrix* gate_up = nullptr;
  const CudaMatrix* down = nullptr;
  const float* gate = nullptr;  // [rows of x], whose sigmoid it is weighted by, or nullptr

  bool is_there() const { return gate_up != nullptr; }
};

/// Experts in the form of this backend.
struct CudaExperts {
  CudaExpertMatrices gate_up, down;
  /// Where it has another format than gate, which `gate_up` is alone then.
  CudaExpertMatrices up = {};
  int64_t top_k = 1;
  Gate gate = Gate::kSilu;
  SwiGLU swiglu = kUsualClamp;
  bool joins_shared = false;  // an expert that every token goes to may be one more of them

  bool is_apart() const { return up.weights != nullptr; }
};

/// Activation of gate and up.
inline cuda::Activation activation_of(const CudaExperts& experts) {
  if (!is_gated(experts.gate)) return cuda::Activation::kNone;
  return experts.gate == Gate::kGelu ? cuda::Activation::kGeGLU : cuda::Activation::kClampedSwiGLU;
}

/// The matrices of a layer are brought to one format, which is packed as upload_weight() packs a
/// single matrix, dense ones as gpu::as_packed_floats() makes them; gate and up that come apart
/// keep a factor each, and may be of two formats. Codes: linear.unsupported names what is
/// supported; recast.*, cuda.memory, cuda.copy, cuda.launch.
Result<CudaExperts> upload_experts(ExpertMatrices experts, const WeightTarget& target);

/// The operation, with the memory that it works in.
class CudaMoe {
 public:
  /// `rounds_inputs`: those of both products are rounded to MXFP8.
  CudaMoe(const cuda::Device& device, gpu::Number number, bool batch_invariant, bool rounds_inputs,
          cuda::Stream stream)
      : device_(device),
        number_(number),
        batch_invariant_(batch_invariant),
        rounds_inputs_(rounds_inputs),
        stream_(stream) {}

  /// Sets experts.joins_shared by what this GPU has. Code linear.unsupported where it has no
  /// kernels for these experts.
  Status choose_kernels(CudaExperts& experts) const;

  /// Says whether run() can leave the logits, and the gate of `shared`, to one kernel with the
  /// choice.
  bool serves(cuda::RouterCall router, const CudaExperts& experts,
              const CudaSharedExpert& shared) const;

  /// Computes what is added for each row of x. `logits` [x.rows][experts], or nullptr: `kernel`,
  /// which serves() has taken, gives them. `shared`: that one, too, if the experts join it. Stays
  /// until the next call. Codes: cuda.memory, cuda.launch.
  Result<cuda::RoutedSum> run(const CudaRows& x, const float* logits, const CudaExperts& experts,
                              const Router& router = {}, const CudaSharedExpert& shared = {},
                              const cuda::RouterCall& kernel = {});

  /// Memory, so that steps which need no more allocate nothing. Code cuda.memory.
  Status reserve(int64_t bytes) { return memory_.reserve(bytes); }
  /// That `tokens` tokens need.
  int64_t memory_bytes(const Experts& experts, int64_t tokens) const;
  int64_t device_bytes() const { return memory_.size(); }

 private:
  cuda::Device device_;
  gpu::Number number_;
  bool batch_invariant_;
  bool rounds_inputs_;
  cuda::Stream stream_;
  OneBuffer memory_;
};

}  // namespace subbyte
