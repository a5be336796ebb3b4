#pragma once
// A backend whose machine fails in some step.

#include <deque>

#include "ops/forwarding_backend.h"

namespace subbyte::testing {

class FailingBackend : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  void submit(const CompiledStep& step, const Batch& batch) override {
    backend_.submit(step, batch);
    steps_.push_back(--until_ == 0);
  }
  Status wait(Logits& logits) override {
    Status status = backend_.wait(logits);
    const bool fails = steps_.front();
    steps_.pop_front();
    return fails ? Error{"memory", "not enough memory for a step"} : status;
  }
  /// Once, after so many more steps.
  void fail_after(int steps) { until_ = steps + 1; }

 private:
  int until_ = -1;
  std::deque<bool> steps_;
};

}  // namespace subbyte::testing
