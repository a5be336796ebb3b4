#pragma once
// Operations of a step of a few single tokens, kept back until they run as one kernel
// (kernels/cuda/step/program.h).

#include <optional>
#include <vector>

#include "cuda_backend/device_memory.h"
#include "cuda_backend/step.h"
#include "cuda_backend/weights.h"
#include "kernels/cuda/step/layout.h"
#include "kernels/cuda/step/tensors.h"
#include "ops/backend.h"

namespace subbyte {

/// A norm whose result has not been stored: products that read it compute it themselves.
struct KeptNorm {
  Tensor y, x;
  const Norm* norm = nullptr;  // of the model
};

/// A product as the backend is asked for it.
struct ProductCall {
  const CudaWeight* weight = nullptr;
  Tensor y, x;
  cuda::Activation activation = cuda::Activation::kNone;
};

/// Each add...() says whether the operation was taken; if not, the caller runs what was kept back,
/// run(), and the operation itself.
class StepPrograms {
 public:
  /// Of the GPU, for counters, all programs of a step, and tensors as tagged floats.
  static constexpr int64_t kMemoryBytes = int64_t{3} << 20;

  /// Steps of at most `most_tokens` tokens. `partials` is memory that attention of any kind works
  /// in; it must outlive this.
  StepPrograms(const cuda::Device& device, cuda::Number number, int most_tokens,
               CudaBuffer& partials, cuda::Stream stream);

  /// What the partials of a step take at most.
  static int64_t partial_bytes(int64_t heads, int64_t kv_heads, int64_t head_dim);

  /// So that steps allocate nothing. Codes: cuda.memory, cuda.copy.
  Status reserve();
  int64_t device_bytes() const { return memory_.size(); }

  /// Every weight of the model, before its steps.
  void see(const CudaWeight& weight);
  /// The model has experts, between which programs would be short: graphs are faster then.
  void see_experts() { has_experts_ = true; }

  /// Whether operations of this batch are kept back: where the model has packed weights and no
  /// experts, and every CTA has few inputs to bring to its shared memory. That follows from the
  /// number of tokens and the longest rows of the model. `step` has not begun yet. Codes: as
  /// reserve().
  Status begin(const Batch& batch, const CudaStep& step);
  bool is_active() const { return is_active_; }
  /// Whether products of this batch have run so.
  bool have_run() const { return have_run_; }

  /// The delta must be what the last product stored, or none; it is not stored then.
  bool add_norm(const Tensor& y, const Tensor& x, const Tensor& delta, const Norm& norm);
  /// All parts of the weight or none.
  bool add_product(const ProductCall& call);
  /// Without the result and the sinks, which end_attention() has; that says whether the operation
  /// before it was such an attention.
  bool add_attention(const cuda::StepAttention& attention);
  bool end_attention(const Tensor& y, const float* sinks);

  /// The norm whose result `x` would be, if there is one, which the caller stores then.
  std::optional<KeptNorm> take_norm(const Tensor& x);

  /// Launches what was kept back. Codes: cuda.memory, cuda.copy, cuda.launch.
  Status run();

 private:
  /// The result of the last operation, whose place is known when the next one comes.
  struct OpenResult {
    const void* data = nullptr;  // nullptr: there is none
    int64_t words = 0;           // of the tensor
    int64_t stride = 0;
    int64_t first = 0;  // column
    std::size_t operation = 0;
  };

  void begin_operation();
  bool close_result();
  cuda::StepInput input(const void* data, int64_t stride, cuda::StepInput::Kind kind, bool in_twos,
                        bool reads_all = true);
  void add_part(const ProductCall& call, const CudaMatrix& part, int64_t first);
  bool has_room() const;
  Result<const std::byte*> upload(const std::vector<std::byte>& bytes);

  cuda::Device device_;
  cuda::Number number_;
  int most_tokens_;
  CudaBuffer& partials_;
  cuda::Stream stream_;
  const CudaStep* step_ = nullptr;
  bool is_active_ = false;
  bool have_run_ = false;
  int64_t longest_row_ = 0;  // of packed weights
  bool has_experts_ = false;
  // The program that grows.
  std::optional<cuda::StepLayout> layout_;
  std::vector<cuda::StepOperation> operations_;
  std::vector<cuda::StepWeights> weights_;
  std::optional<KeptNorm> norm_;
  bool is_attention_open_ = false;
  const void* last_result_ = nullptr;  // of the last product
  OpenResult open_;
  cuda::StepTensors tensors_;
  bool clears_words_ = false;
  int64_t partial_bytes_ = 0;  // of its attentions, the most
  int64_t kv_heads_ = 1;       // the most
  // On the GPU: counters of splits, tagged floats, then the programs of this step, as far as they
  // were written there before.
  CudaBuffer memory_;
  std::vector<std::byte> written_;
  std::size_t used_ = 0;
};

}  // namespace subbyte
