#include "kernels/cuda/step/tensors.h"

#include <algorithm>

namespace subbyte::cuda {

bool StepTensors::begin_program() {
  known_.clear();
  const bool begins_anew = is_full_ || std::ranges::any_of(tensors_, [](const Tensor& tensor) {
                             return tensor.place.tag > kLastTag / 2;
                           });
  if (begins_anew) {
    tensors_.clear();
    used_ = 0;
    is_full_ = false;
  }
  for (Tensor& tensor : tensors_) tensor = {tensor.data, tensor.words, tensor.place};
  return begins_anew;
}

std::optional<StepTensors::Place> StepTensors::read(const void* data) {
  const int index = num_operations();
  Tensor* const tensor = find(data);
  if (tensor == nullptr || tensor->first_writer < 0) {
    known_.push_back(0);
    return {};
  }
  const int first = tensor->first_writer;
  const bool knows_all_before = known_[first] >= first;
  known_.push_back(knows_all_before ? tensor->last_writer + 1 : known_[first]);
  tensor->last_reader = index;
  return tensor->place;
}

std::optional<StepTensors::Place> StepTensors::write(const void* data, int64_t words, bool begins) {
  Tensor* const tensor = find_or_add(data, words);
  if (tensor == nullptr || is_full_) return {};
  const int index = num_operations() - 1;
  if (begins) {
    if (tensor->place.tag == kLastTag) is_full_ = true;
    if (is_full_) return {};
    tensor->reader_before = tensor->last_reader;
    tensor->writer_before = tensor->last_writer;
    tensor->first_writer = index;
    tensor->last_reader = -1;
    ++tensor->place.tag;
  }
  tensor->last_writer = index;
  const int before = std::max(tensor->reader_before, tensor->writer_before);
  if (before >= known_.back()) return {};
  return tensor->place;
}

StepTensors::Tensor* StepTensors::find(const void* data) {
  const auto found = std::ranges::find(tensors_, data, &Tensor::data);
  return found == tensors_.end() ? nullptr : &*found;
}

/// nullptr: there is no room left, or another tensor lies there, until the words are cleared.
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

}  // namespace subbyte::cuda
