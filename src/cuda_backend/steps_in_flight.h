#pragma once
// Steps that are on their way: what of each waits for the host.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda_backend/device_memory.h"
#include "kernels/cuda/common/elements.h"
#include "ops/batch.h"

struct CUevent_st;  // cudaEvent_t, without the toolkit's headers

namespace subbyte {

/// A value for the next stage, in device memory.
struct SentValue {
  float* numbers = nullptr;
  int64_t count = 0;
};

struct StepInFlight {
  Status error;  // the first
  int64_t num_logits = 0;
  int64_t vocab_size = 0;
  int64_t num_choices = 0;
  CudaBuffer tokens{pinned_step_memory()};
  CudaBuffer logits{pinned_step_memory()};
  CudaBuffer lost{pinned_step_memory()};  // StepResults::lost
  bool knows_loss = false;                // that is copied
  int64_t num_sent = 0;
  CudaBuffer sent_numbers{pinned_step_memory()};  // one value after the other
  CUevent_st* done = nullptr;
};

/// In device memory.
struct StepResults {
  const float* logits = nullptr;  // [Batch::num_head_rows()][vocab_size]
  int64_t vocab_size = 0;
  const int32_t* tokens = nullptr;  // of choices
  /// Not 0 once a kernel has waited for another rank in vain; nullptr: there are none.
  const uint32_t* lost = nullptr;
  std::vector<SentValue> sent{};
};

class StepsInFlight {
 public:
  static constexpr int64_t kMax = 2;

  StepsInFlight() = default;
  StepsInFlight(const StepsInFlight&) = delete;
  StepsInFlight& operator=(const StepsInFlight&) = delete;
  ~StepsInFlight();

  /// Fewer than kMax have begun and are not finished. Makes room for results of `vocab_size` logits
  /// a row: memory that is taken later may wait for kernels that wait for other ranks. Codes:
  /// cuda.launch, cuda.memory.
  Status begin(const Batch& batch, int64_t vocab_size);
  /// The one that began last.
  StepInFlight& current() { return steps_[(num_begun_ - 1) % kMax]; }
  /// The current one is in the stream: copies its results to the host, the logits that its parts
  /// ask for, of all that it has, and the tokens.
  void end(const StepResults& results, const Batch& batch, cuda::Stream stream);
  /// Waits for the oldest one. Codes: cuda.launch, cuda.memory of the host, exchange.lost, that of
  /// its error.
  Status finish(Logits& logits);

 private:
  std::array<StepInFlight, kMax> steps_;
  uint64_t num_begun_ = 0;
  uint64_t num_finished_ = 0;
};

}  // namespace subbyte
