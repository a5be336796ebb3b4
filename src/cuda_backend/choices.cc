#include "cuda_backend/choices.h"

#include <cuda_runtime_api.h>

#include <bit>

namespace subbyte {

void CudaChoices::begin(const Batch& batch) {
  rows_.clear();
  history_.clear();
  int64_t head_rows = 0;
  for (const Part& part : batch.parts) {
    head_rows += part.num_head_rows();
    if (!part.choice) continue;
    const TokenChoice& choice = *part.choice;
    const bool has_penalty = choice.repetition_penalty != 1;
    const std::span<const int32_t> history =
        has_penalty ? choice.history : std::span<const int32_t>();
    rows_.push_back({choice.temperature, choice.top_p, choice.min_p, choice.repetition_penalty,
                     choice.uniform, choice.top_k, head_rows - 1, std::ssize(history_),
                     std::ssize(history)});
    history_.insert(history_.end(), history.begin(), history.end());
  }
}

Status CudaChoices::run(CudaStep& step, CudaFlight& flight, const float* logits,
                        int64_t vocabulary, cuda::Stream stream) {
  if (rows_.empty()) return {};
  const std::span<const std::byte> rows = std::as_bytes(std::span(rows_));
  const std::span<const std::byte> history = std::as_bytes(std::span(history_));
  std::vector<std::byte> packet(rows.begin(), rows.end());
  packet.insert(packet.end(), history.begin(), history.end());
  packet.resize(std::bit_ceil(packet.size()));  // a history grows, its buffers not in each step
  SUBBYTE_TRY(const std::byte* const on_device, step.upload(packet));

  cuda::SampleCall call;
  call.logits = logits;
  call.vocabulary = vocabulary;
  call.choices = reinterpret_cast<const cuda::ChoiceRow*>(on_device);
  call.history = reinterpret_cast<const int32_t*>(on_device + rows.size());
  call.num_choices = std::ssize(rows_);
  for (const cuda::ChoiceRow& row : rows_) {
    if (row.penalty != 1) call.has_penalty = true;
    const bool has_top_k = row.top_k > 0 && row.top_k < vocabulary;
    if (row.temperature != 0 && !has_top_k) call.has_all_tokens = true;
  }
  const int64_t token_bytes = call.num_choices * static_cast<int64_t>(sizeof(int32_t));
  SUBBYTE_TRY(call.scratch, step.take(cuda::sample_scratch_bytes(call)));
  SUBBYTE_CHECK(flight.chosen.grow(token_bytes));
  SUBBYTE_CHECK(flight.tokens.grow(token_bytes));
  call.tokens = reinterpret_cast<int32_t*>(flight.chosen.data());
  cuda::run_sample(call, stream);
  const cudaError_t error = cudaMemcpyAsync(flight.tokens.data(), flight.chosen.data(), token_bytes,
                                            cudaMemcpyDeviceToHost, stream);
  if (error != cudaSuccess) return cuda_error("cuda.copy", "copy of the tokens", error);
  return {};
}

}  // namespace subbyte
