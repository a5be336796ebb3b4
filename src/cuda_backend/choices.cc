#include "cuda_backend/choices.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace subbyte {

void CudaChoices::begin(const Batch& batch) {
  rows_.clear();
  history_.clear();
  has_penalty_ = false;
  largest_top_k_ = 0;
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
    has_penalty_ = has_penalty_ || has_penalty;
    const int64_t top_k = choice.top_k > 0 ? choice.top_k : std::numeric_limits<int64_t>::max();
    if (choice.temperature != 0) largest_top_k_ = std::max(largest_top_k_, top_k);
  }
  const std::span<const std::byte> rows = std::as_bytes(std::span(rows_));
  const std::span<const std::byte> history = std::as_bytes(std::span(history_));
  packet_.assign(rows.begin(), rows.end());
  packet_.insert(packet_.end(), history.begin(), history.end());
  packet_.resize(std::bit_ceil(packet_.size()));  // a history grows, its buffers not in each step
}

Status CudaChoices::run(CudaStep& step, const float* logits, int64_t vocabulary,
                        cuda::Stream stream) {
  if (rows_.empty()) return {};
  cuda::SampleCall call;
  call.logits = logits;
  call.vocabulary = vocabulary;
  call.choices = reinterpret_cast<const cuda::ChoiceRow*>(step.choices());
  call.history = reinterpret_cast<const int32_t*>(call.choices + rows_.size());
  call.num_choices = std::ssize(rows_);
  call.has_penalty = has_penalty_;
  call.has_all_tokens = largest_top_k_ >= vocabulary;
  SUBBYTE_TRY(call.scratch, step.take(cuda::sample_scratch_bytes(call)));
  SUBBYTE_CHECK(chosen_.grow(call.num_choices * static_cast<int64_t>(sizeof(int32_t))));
  call.tokens = reinterpret_cast<int32_t*>(chosen_.data());
  cuda::run_sample(call, stream);
  return {};
}

}  // namespace subbyte
