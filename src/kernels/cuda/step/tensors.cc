#include "kernels/cuda/step/tensors.h"

#include <algorithm>

namespace subbyte::cuda {

void StepTensors::begin_program() {
  known_.clear();
  known_to_writers_ = 0;
  old_reads_.clear();
  if (is_full_) {
    tensors_.clear();
    used_ = 0;
    is_full_ = false;
  }
  for (Tensor& tensor : tensors_) tensor = {tensor.data, tensor.words, {tensor.place.begin, 0}};
}

std::optional<StepTensors::Place> StepTensors::read(const void* data, bool reads_all) {
  const int index = num_operations();
  Tensor* const tensor = find(data);
  if (tensor == nullptr || tensor->first_writer < 0) {
    known_.push_back(0);
    known_to_writers_ = 0;
    old_reads_.push_back({data, index});
    return {};
  }
  const int first = tensor->first_writer;
  const bool knows_all_before = known_[first] >= first;
  known_.push_back(knows_all_before ? tensor->last_writer + 1 : known_[first]);
  known_to_writers_ = reads_all ? known_.back() : known_[first];
  tensor->last_reader = index;
  return tensor->place;
}

bool StepTensors::has(const void* data) const {
  const auto found = std::ranges::find(tensors_, data, &Tensor::data);
  return found != tensors_.end() && found->first_writer >= 0;
}

std::optional<StepTensors::Place> StepTensors::also_read(const void* data, bool reads_all) {
  const int index = num_operations() - 1;
  Tensor* const tensor = find(data);
  if (tensor == nullptr || tensor->first_writer < 0) {
    old_reads_.push_back({data, index});
    return {};
  }
  const int first = tensor->first_writer;
  const auto raise = [&](int& known, bool has_all) {
    const bool knows_all_before = has_all && std::max(known_[first], known) >= first;
    known = std::max(known, knows_all_before ? tensor->last_writer + 1 : known_[first]);
  };
  raise(known_.back(), true);
  raise(known_to_writers_, reads_all);
  tensor->last_reader = index;
  return tensor->place;
}

std::optional<StepTensors::Place> StepTensors::write(const void* data, int64_t words, bool begins) {
  Tensor* const tensor = find_or_add(data, words);
  if (tensor == nullptr || is_full_) return {};
  const int index = num_operations() - 1;
  if (begins) {
    if (tensor->place.tag == kLastStepTag) is_full_ = true;
    if (is_full_) return {};
    tensor->reader_before = tensor->last_reader;
    tensor->writer_before = tensor->last_writer;
    tensor->first_writer = index;
    tensor->last_reader = -1;
    ++tensor->place.tag;
  }
  tensor->last_writer = index;
  const int before =
      std::max({tensor->reader_before, tensor->writer_before, last_old_reader(data)});
  if (before >= known_to_writers_) return {};
  return tensor->place;
}

int StepTensors::last_old_reader(const void* data) const {
  int last = -1;
  for (const OldRead& read : old_reads_) {
    if (read.data == data) last = read.reader;
  }
  return last;
}

StepTensors::Tensor* StepTensors::find(const void* data) {
  const auto found = std::ranges::find(tensors_, data, &Tensor::data);
  return found == tensors_.end() ? nullptr : &*found;
}

/// nullptr: there is no room left, or another tensor lies there, until the next program.
StepTensors::Tensor* StepTensors::find_or_add(const void* data, int64_t words) {
  Tensor* const known = find(data);
  if (known != nullptr && known->words == words) return known;
  if (known != nullptr || words > capacity_ - used_) {
    is_full_ = true;
    return nullptr;
  }
  tensors_.push_back({data, words, {used_, 0}});
  used_ += (words + 1) / 2 * 2;  // so that two neighbours can be loaded at once
  return &tensors_.back();
}

StepTags::Base StepTags::begin_program(uint32_t tags) {
  const bool clears = tags > kLastStepTag - used_;
  const uint32_t base = clears ? 0 : used_;
  used_ = base + tags;
  return {base, clears};
}

}  // namespace subbyte::cuda
