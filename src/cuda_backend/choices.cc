#include "cuda_backend/choices.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace subbyte {

namespace {

/// Appends what changes logits; the places of it go to `row`.
void append_changes(const TokenChoice& choice, std::vector<int32_t>& tokens, cuda::ChoiceRow& row) {
  const std::span<const int32_t> history = choice.penalized();
  row.history_begin = std::ssize(tokens);
  row.history_size = std::ssize(history);
  row.num_generated = choice.counts_generated() ? choice.num_generated : 0;
  tokens.insert(tokens.end(), history.begin(), history.end());
  row.biases_begin = std::ssize(tokens);
  row.num_biases = std::ssize(choice.biases);
  for (const LogitBias& bias : choice.biases) {
    tokens.push_back(bias.token);
    tokens.push_back(std::bit_cast<int32_t>(bias.bias));
  }
}

}  // namespace

void CudaChoices::begin(const Batch& batch) {
  rows_.clear();
  tokens_of_rows_.clear();
  has_changes_ = false;
  largest_top_k_ = 0;
  int64_t head_rows = 0;
  for (const Part& part : batch.parts) {
    head_rows += part.num_head_rows();
    if (!part.choice) continue;
    const TokenChoice& choice = *part.choice;
    cuda::ChoiceRow& row = rows_.emplace_back();
    row.temperature = choice.temperature;
    row.top_p = choice.top_p;
    row.min_p = choice.min_p;
    row.repetition_penalty = choice.repetition_penalty;
    row.frequency_penalty = choice.frequency_penalty;
    row.presence_penalty = choice.presence_penalty;
    row.uniform = choice.uniform;
    row.top_k = choice.top_k;
    row.row = head_rows - 1;
    append_changes(choice, tokens_of_rows_, row);
    has_changes_ = has_changes_ || row.has_changes();
    const int64_t top_k = choice.top_k > 0 ? choice.top_k : std::numeric_limits<int64_t>::max();
    if (choice.temperature != 0) largest_top_k_ = std::max(largest_top_k_, top_k);
  }
  const std::span<const std::byte> rows = std::as_bytes(std::span(rows_));
  const std::span<const std::byte> tokens = std::as_bytes(std::span(tokens_of_rows_));
  packet_.assign(rows.begin(), rows.end());
  packet_.insert(packet_.end(), tokens.begin(), tokens.end());
  packet_.resize(std::bit_ceil(packet_.size()));  // a history grows, its buffers not in each step
}

Status CudaChoices::run(CudaStep& step, const float* logits, int64_t vocabulary,
                        cuda::Stream stream) {
  if (rows_.empty()) return {};
  cuda::SampleCall call;
  call.logits = logits;
  call.vocabulary = vocabulary;
  call.choices = reinterpret_cast<const cuda::ChoiceRow*>(step.choices());
  call.tokens_of_rows = reinterpret_cast<const int32_t*>(call.choices + rows_.size());
  call.num_choices = std::ssize(rows_);
  call.has_changes = has_changes_;
  call.has_all_tokens = largest_top_k_ >= vocabulary;
  SUBBYTE_TRY(call.scratch, step.take(cuda::sample_scratch_bytes(call)));
  SUBBYTE_CHECK(chosen_.grow(call.num_choices * static_cast<int64_t>(sizeof(int32_t))));
  call.tokens = reinterpret_cast<int32_t*>(chosen_.data());
  cuda::run_sample(call, stream);
  return {};
}

}  // namespace subbyte
