#pragma once
// The tokens that the parts of a step let choose: from the batch to kernels/cuda/ops/sample.h.

#include <vector>

#include "cuda_backend/device_memory.h"
#include "cuda_backend/step.h"
#include "kernels/cuda/ops/sample.h"

namespace subbyte {

class CudaChoices {
 public:
  /// Whose choices the next run() makes.
  void begin(const Batch& batch);

  /// Enqueues the choices, if there are any. `logits` [Batch::num_head_rows()][vocabulary] in
  /// device memory. Codes: cuda.memory, cuda.copy.
  Status run(CudaStep& step, const float* logits, int64_t vocabulary, cuda::Stream stream);

  /// After the stream has run: a token for each choice.
  void read(std::vector<int32_t>& tokens) const;

 private:
  std::vector<cuda::ChoiceRow> rows_;
  std::vector<int32_t> history_;  // of all choices
  CudaBuffer pinned_tokens_{CudaBuffer::Place::kHost};
};

}  // namespace subbyte
