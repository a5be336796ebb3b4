#pragma once
// The tokens that the parts of a step let choose: from the batch to kernels/cuda/ops/sample.h.

#include <vector>

#include "cuda_backend/flights.h"
#include "cuda_backend/step.h"
#include "kernels/cuda/ops/sample.h"

namespace subbyte {

class CudaChoices {
 public:
  /// Whose choices the next run() makes.
  void begin(const Batch& batch);

  /// Enqueues the choices, if there are any, and their copy to the host. `logits`
  /// [Batch::num_head_rows()][vocabulary] in device memory. Codes: cuda.memory, cuda.copy.
  Status run(CudaStep& step, CudaFlight& flight, const float* logits, int64_t vocabulary,
             cuda::Stream stream);

 private:
  std::vector<cuda::ChoiceRow> rows_;
  std::vector<int32_t> history_;  // of all choices
};

}  // namespace subbyte
