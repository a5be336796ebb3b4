#pragma once
// Steps that are on their way: what of each waits for the host, and for the step after it.

#include <array>
#include <cstdint>

#include "cuda_backend/device_memory.h"
#include "kernels/cuda/ops/elements.h"
#include "ops/batch.h"

struct CUevent_st;  // cudaEvent_t, without the toolkit's headers

namespace subbyte {

struct CudaFlight {
  Status error;  // the first
  int64_t num_logits = 0;
  int64_t vocab_size = 0;
  int64_t num_choices = 0;
  CudaBuffer chosen;                             // tokens, where the next step reads them
  CudaBuffer tokens{CudaBuffer::Place::kHost};   // the same
  CudaBuffer logits{CudaBuffer::Place::kHost};
  CUevent_st* done = nullptr;
};

class CudaFlights {
 public:
  static constexpr int64_t kMost = 2;

  CudaFlights() = default;
  CudaFlights(const CudaFlights&) = delete;
  CudaFlights& operator=(const CudaFlights&) = delete;
  ~CudaFlights();

  /// Fewer than kMost have begun and are not finished. Code cuda.launch.
  Status begin(const Batch& batch);
  /// The one that began last.
  CudaFlight& current() { return flights_[(num_begun_ - 1) % kMost]; }
  /// What the one before it chooses, in device memory.
  const int32_t* chosen_before() const {
    return reinterpret_cast<const int32_t*>(flights_[num_begun_ % kMost].chosen.data());
  }
  /// All of the current one is in the stream.
  void end(cuda::Stream stream);
  /// Waits for the oldest one. Code cuda.launch, and that of its error.
  Status finish(Logits& logits);

 private:
  std::array<CudaFlight, kMost> flights_;
  uint64_t num_begun_ = 0;
  uint64_t num_finished_ = 0;
};

}  // namespace subbyte
