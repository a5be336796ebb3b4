#include "cuda_backend/flights.h"

#include <cuda_runtime_api.h>

#include <cstring>
#include <utility>

namespace subbyte {
namespace {

void set_error(Status& status, cudaError_t error) {
  if (error != cudaSuccess && status.ok()) status = cuda_error("cuda.launch", "a step", error);
}

}  // namespace

CudaFlights::~CudaFlights() {
  for (CudaFlight& flight : flights_) {
    if (flight.done != nullptr) cudaEventDestroy(flight.done);
  }
}

Status CudaFlights::begin(const Batch& batch) {
  ++num_begun_;
  CudaFlight& flight = current();
  flight.error = {};
  flight.num_logits = batch.num_logits();
  flight.num_choices = batch.num_choices();
  flight.vocab_size = 0;
  if (flight.done != nullptr) return {};
  const cudaError_t error = cudaEventCreateWithFlags(&flight.done, cudaEventDisableTiming);
  if (error == cudaSuccess) return {};
  flight.done = nullptr;
  return cuda_error("cuda.launch", "an event", error);
}

void CudaFlights::end(cuda::Stream stream) {
  CudaFlight& flight = current();
  if (flight.done != nullptr) set_error(flight.error, cudaEventRecord(flight.done, stream));
}

Status CudaFlights::finish(Logits& logits) {
  CudaFlight& flight = flights_[num_finished_++ % kMost];
  if (flight.done != nullptr) set_error(flight.error, cudaEventSynchronize(flight.done));
  SUBBYTE_CHECK(std::exchange(flight.error, {}));
  logits.vocab_size = flight.num_logits == 0 ? 0 : flight.vocab_size;
  logits.values.resize(flight.num_logits * logits.vocab_size);
  logits.tokens.resize(flight.num_choices);
  if (!logits.values.empty()) {
    std::memcpy(logits.values.data(), flight.logits.data(), logits.values.size() * sizeof(float));
  }
  if (!logits.tokens.empty()) {
    std::memcpy(logits.tokens.data(), flight.tokens.data(), logits.tokens.size() * sizeof(int32_t));
  }
  return {};
}

}  // namespace subbyte
