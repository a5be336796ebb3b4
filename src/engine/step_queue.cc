#include "engine/step_queue.h"

#include <utility>

namespace subbyte {
namespace {

void take_back(const std::vector<Part>& parts) {
  for (const Part& part : parts) {
    if (part.sequence == nullptr) continue;
    part.sequence->truncate(part.sequence->length() - std::ssize(part.tokens));
  }
}

}  // namespace

Status StepQueue::push(std::vector<Part> parts) {
  const std::span<const Part> before = empty() ? std::span<const Part>() : last();
  SUBBYTE_CHECK(model_.submit(backend_, {parts}, before));
  steps_.push_back(std::move(parts));
  return {};
}

Result<std::vector<Part>> StepQueue::pop(Logits& logits) {
  Status status = backend_.wait(logits);
  std::vector<Part> parts = std::move(steps_.front());
  steps_.pop_front();
  if (status.ok()) return parts;
  clear();
  take_back(parts);
  return std::move(status).error();
}

int64_t StepQueue::finished_length(const Sequence& sequence) const {
  int64_t length = sequence.length();
  for (const std::vector<Part>& step : steps_) {
    for (const Part& part : step) {
      if (part.sequence == &sequence) length -= std::ssize(part.tokens);
    }
  }
  return length;
}

void StepQueue::clear() {
  Logits none;
  for (std::size_t i = 0; i < steps_.size(); ++i) static_cast<void>(backend_.wait(none));
  take_back_all();
}

void StepQueue::take_back_all() {
  for (; !steps_.empty(); steps_.pop_back()) take_back(steps_.back());
}

void StepQueue::forget(const Sequence& sequence) {
  for (std::vector<Part>& parts : steps_) {
    for (Part& part : parts) {
      if (part.sequence == &sequence) part.sequence = nullptr;
    }
  }
}

}  // namespace subbyte
