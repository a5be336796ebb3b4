#include "cuda_backend/steps_in_flight.h"

#include <cuda_runtime_api.h>

#include <cstring>
#include <new>
#include <span>
#include <utility>

namespace subbyte {
namespace {

constexpr int64_t kNumberBytes = 4;  // of a logit, of a token

Error step_error(cudaError_t error) {
  return cuda_error("cuda.launch", "a step", error);
}

Status copy_to_host(CudaBuffer& to, int64_t at, const void* from, int64_t bytes,
                    cuda::Stream stream) {
  if (bytes == 0) return {};
  const cudaError_t error =
      cudaMemcpyAsync(to.data() + at, from, bytes, cudaMemcpyDeviceToHost, stream);
  return error == cudaSuccess ? Status() : cuda_error("cuda.copy", "copy of the results", error);
}

/// Of the rows of the head those that parts ask for, and not those for choices alone.
Status copy_logits(CudaBuffer& to, const StepResults& results, const Batch& batch,
                   cuda::Stream stream) {
  const int64_t row_bytes = results.vocab_size * kNumberBytes;
  const float* from = results.logits;
  int64_t at = 0;
  for (const Part& part : batch.parts) {
    const int64_t bytes = part.num_logits * row_bytes;
    SUBBYTE_CHECK(copy_to_host(to, at, from, bytes, stream));
    at += bytes;
    from += part.num_head_rows() * results.vocab_size;
  }
  return {};
}

/// All values, one after the other; how many numbers.
Result<int64_t> copy_sent(CudaBuffer& to, std::span<const SentValue> sent, cuda::Stream stream) {
  int64_t count = 0;
  for (const SentValue& value : sent) count += value.count;
  SUBBYTE_CHECK(to.grow(count * kNumberBytes));
  int64_t at = 0;
  for (const SentValue& value : sent) {
    const int64_t bytes = value.count * kNumberBytes;
    SUBBYTE_CHECK(copy_to_host(to, at, value.numbers, bytes, stream));
    at += bytes;
  }
  return count;
}

}  // namespace

StepsInFlight::~StepsInFlight() {
  for (StepInFlight& flight : steps_) {
    if (flight.done != nullptr) cudaEventDestroy(flight.done);
  }
}

Status StepsInFlight::begin(const Batch& batch, int64_t vocab_size) {
  ++num_begun_;
  StepInFlight& flight = current();
  flight.error = {};
  flight.num_logits = batch.num_logits();
  flight.num_choices = batch.num_choices();
  flight.vocab_size = 0;
  flight.knows_loss = false;
  SUBBYTE_CHECK(flight.logits.grow(flight.num_logits * vocab_size * kNumberBytes));
  SUBBYTE_CHECK(flight.tokens.grow(flight.num_choices * kNumberBytes));
  SUBBYTE_CHECK(flight.lost.grow(kNumberBytes));
  if (flight.done != nullptr) return {};
  const cudaError_t error = cudaEventCreateWithFlags(&flight.done, cudaEventDisableTiming);
  if (error == cudaSuccess) return {};
  flight.done = nullptr;
  return cuda_error("cuda.launch", "an event", error);
}

void StepsInFlight::end(const StepResults& results, const Batch& batch, cuda::Stream stream) {
  StepInFlight& flight = current();
  const int64_t token_bytes = flight.num_choices * kNumberBytes;
  flight.vocab_size = results.vocab_size;
  if (flight.error.ok()) flight.error = copy_logits(flight.logits, results, batch, stream);
  if (flight.error.ok()) {
    flight.error = copy_to_host(flight.tokens, 0, results.tokens, token_bytes, stream);
  }
  flight.num_sent = 0;
  if (flight.error.ok()) {
    const auto sent = copy_sent(flight.sent_numbers, results.sent, stream);
    if (sent.ok()) flight.num_sent = *sent;
    if (!sent.ok()) flight.error = sent.error();
  }
  flight.knows_loss = results.lost != nullptr;
  if (flight.error.ok() && flight.knows_loss) {
    flight.error = copy_to_host(flight.lost, 0, results.lost, kNumberBytes, stream);
  }
  if (flight.done == nullptr) return;
  const cudaError_t error = cudaEventRecord(flight.done, stream);
  if (error != cudaSuccess && flight.error.ok()) flight.error = step_error(error);
}

/// After an error, too, nothing of the step runs any more, and it is finished.
Status StepsInFlight::finish(Logits& logits) {
  StepInFlight& flight = steps_[num_finished_++ % kMax];
  const cudaError_t error =
      flight.done == nullptr ? cudaSuccess : cudaEventSynchronize(flight.done);
  SUBBYTE_CHECK(std::exchange(flight.error, {}));
  if (error != cudaSuccess) return step_error(error);
  uint32_t lost = 0;
  if (flight.knows_loss) std::memcpy(&lost, flight.lost.data(), sizeof lost);
  if (lost != 0) {
    return Error{"exchange.lost", "another GPU was waited for in vain: what a step gives is wrong"};
  }
  logits.vocab_size = flight.num_logits == 0 ? 0 : flight.vocab_size;
  try {
    logits.values.resize(flight.num_logits * logits.vocab_size);
    logits.tokens.resize(flight.num_choices);
    const auto* const sent = reinterpret_cast<const float*>(flight.sent_numbers.data());
    logits.sent.assign(sent, sent + flight.num_sent);
  } catch (const std::bad_alloc&) {
    return Error{"cuda.memory", "no memory of the host for the results of a step"};
  }
  if (!logits.values.empty()) {
    std::memcpy(logits.values.data(), flight.logits.data(), logits.values.size() * sizeof(float));
  }
  if (!logits.tokens.empty()) {
    std::memcpy(logits.tokens.data(), flight.tokens.data(), logits.tokens.size() * sizeof(int32_t));
  }
  return {};
}

}  // namespace subbyte
