#pragma once
// A backend that notes how long the host submits a step and waits for one.

#include "bench/timing.h"
#include "ops/forwarding_backend.h"

namespace subbyte::bench {

class TimedBackend : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  /// Seconds of the last submit() and of the last wait().
  double submit_seconds() const { return submit_seconds_; }
  double wait_seconds() const { return wait_seconds_; }

  void submit(const CompiledStep& step, const Batch& batch) override {
    const double start = now();
    backend_.submit(step, batch);
    submit_seconds_ = now() - start;
  }
  Status wait(Logits& logits) override {
    const double start = now();
    Status status = backend_.wait(logits);
    wait_seconds_ = now() - start;
    return status;
  }

 private:
  double submit_seconds_ = 0;
  double wait_seconds_ = 0;
};

}  // namespace subbyte::bench
