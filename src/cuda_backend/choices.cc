#include "cuda_backend/choices.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "ops/part_choice.h"

namespace subbyte {

namespace {

static_assert(kMaxPartCandidates <= cuda::kMaxGivenCandidates);

/// Candidates of each rank, of which the choices of a batch take as many or fewer; 0: some take all
/// logits.
int64_t candidates_of(const Batch& batch) {
  int64_t most = 0;
  for (const Part& part : batch.parts) {
    if (part.num_logits > 0) return 0;
    if (!part.choice) continue;
    const int64_t candidates = candidates_of_part(*part.choice);
    if (candidates == 0) return 0;
    most = std::max(most, candidates);
  }
  return most;
}

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

void CudaChoices::begin(const Batch& batch, int ranks, bool is_observed) {
  ranks_ = ranks;
  candidates_ = ranks > 1 && !is_observed ? candidates_of(batch) : 0;
  packet_.clear();
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
  add_to_packet(std::as_bytes(std::span(rows_)));
  if (has_candidates()) add_rows_of_candidates();
  add_to_packet(std::as_bytes(std::span(tokens_of_rows_)));
  packet_.resize(std::bit_ceil(packet_.size()));  // a history grows, its buffers not in each step
}

void CudaChoices::add_to_packet(std::span<const std::byte> bytes) {
  packet_.insert(packet_.end(), bytes.begin(), bytes.end());
}

/// The same choices of other rows, whose logits have changed.
void CudaChoices::add_rows_of_candidates() {
  std::vector<cuda::ChoiceRow> rows = rows_;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].row = static_cast<int64_t>(i);
    rows[i].history_size = rows[i].num_generated = rows[i].num_biases = 0;
  }
  add_to_packet(std::as_bytes(std::span(rows)));
}

Status CudaChoices::prepare(CudaStep& step, int64_t vocabulary, const ColumnRange& own, int rank) {
  if (rows_.empty()) return {};
  const auto* const rows = reinterpret_cast<const cuda::ChoiceRow*>(step.choices());
  all_ = {};
  all_.vocabulary = vocabulary;
  all_.choices = rows;
  all_.tokens_of_rows =
      reinterpret_cast<const int32_t*>(rows + (has_candidates() ? 2 : 1) * rows_.size());
  all_.num_choices = std::ssize(rows_);
  all_.has_changes = has_changes_;
  all_.has_all_tokens = largest_top_k_ >= vocabulary;
  if (has_candidates()) SUBBYTE_CHECK(prepare_candidates(step, own, rank));
  SUBBYTE_TRY(all_.scratch, step.take(cuda::sample_scratch_bytes(all_)));
  SUBBYTE_CHECK(chosen_.grow(all_.num_choices * static_cast<int64_t>(sizeof(int32_t))));
  all_.tokens = reinterpret_cast<int32_t*>(chosen_.data());
  return {};
}

/// Candidates of all ranks lie as rows of logits do, beside the tokens that these are of.
Status CudaChoices::prepare_candidates(CudaStep& step, const ColumnRange& own, int rank) {
  given_.of = all_;
  given_.of.vocabulary = own.count;
  given_.of.first_token = own.first;
  given_.of.has_all_tokens = false;
  SUBBYTE_TRY(given_.of.scratch, step.take(cuda::sample_scratch_bytes(given_.of)));
  SUBBYTE_TRY(std::byte* const numbers, step.take(exchanged_floats() * 4));
  numbers_ = reinterpret_cast<float*>(numbers);
  all_.vocabulary = ranks_ * candidates_;
  all_.choices += rows_.size();
  all_.has_changes = false;
  all_.has_all_tokens = false;
  all_.logits = numbers_;
  all_.names = numbers_ + all_.num_choices * all_.vocabulary;
  given_.count = candidates_;
  given_.stride = all_.vocabulary;
  given_.logits = numbers_ + rank * candidates_;
  given_.tokens = given_.logits + all_.num_choices * all_.vocabulary;
  return {};
}

/// In multiples of 16 bytes, as sums have them.
int64_t CudaChoices::exchanged_floats() const {
  return (2 * std::ssize(rows_) * ranks_ * candidates_ + 3) / 4 * 4;
}

void CudaChoices::run(const float* logits, cuda::Stream stream) {
  if (rows_.empty()) return;
  all_.logits = logits;
  cuda::run_sample(all_, stream);
}

Status CudaChoices::give(const float* logits, cuda::Stream stream) {
  const auto bytes = static_cast<std::size_t>(exchanged_floats() * 4);
  const cudaError_t error = cudaMemsetAsync(numbers_, 0, bytes, stream);
  if (error != cudaSuccess) return cuda_error("cuda.launch", "candidates of a rank", error);
  given_.of.logits = logits;
  cuda::run_candidates(given_, stream);
  return {};
}

cuda::PeerSumCall CudaChoices::exchanged() const {
  return {numbers_, numbers_, exchanged_floats(), Element::kF32};
}

void CudaChoices::choose_of_all(cuda::Stream stream) {
  cuda::run_sample(all_, stream);
}

}  // namespace subbyte
