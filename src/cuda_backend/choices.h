#pragma once
// The tokens that the parts of a step let choose: from the batch to kernels/cuda/sampling/sample.h.

#include <span>
#include <vector>

#include "cuda_backend/device_memory.h"
#include "cuda_backend/step.h"
#include "kernels/cuda/sampling/sample.h"

namespace subbyte {

class CudaChoices {
 public:
  /// Whose choices the next run() makes.
  void begin(const Batch& batch);

  /// Bytes that run() finds at CudaStep::choices().
  std::span<const std::byte> packet() const { return packet_; }
  /// Numbers that launches follow from besides the size of the packet.
  StepShapeKey shape_key() const {
    return {std::ssize(rows_), has_changes_ ? 1 : 0, largest_top_k_};
  }

  /// Enqueues the choices, if there are any. `logits` [Batch::num_head_rows()][vocabulary] in
  /// device memory. Code cuda.memory.
  Status run(CudaStep& step, const float* logits, int64_t vocabulary, cuda::Stream stream);

  /// In device memory: a token for each choice of the last step that ran.
  const int32_t* chosen() const { return reinterpret_cast<const int32_t*>(chosen_.data()); }

 private:
  std::vector<cuda::ChoiceRow> rows_;
  std::vector<int32_t> tokens_of_rows_;  // histories and biases of all choices
  std::vector<std::byte> packet_;        // both
  bool has_changes_ = false;             // some choice has
  int64_t largest_top_k_ = 0;            // of those that are drawn
  CudaBuffer chosen_;
};

}  // namespace subbyte
