#pragma once
// A backend that notes how long the host enqueues a step and waits for one.

#include "bench/timing.h"
#include "ops/forwarding_backend.h"

namespace subbyte::bench {

class TimedBackend : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  /// Seconds from begin() to end() of the step that was enqueued last, and of the last finish().
  double enqueue_seconds() const { return enqueue_seconds_; }
  double wait_seconds() const { return wait_seconds_; }

  void begin(const Batch& batch) override {
    begun_ = now();
    backend_.begin(batch);
  }
  void end() override {
    backend_.end();
    enqueue_seconds_ = now() - begun_;
  }
  Status finish(Logits& logits) override {
    const double start = now();
    Status status = backend_.finish(logits);
    wait_seconds_ = now() - start;
    return status;
  }

 private:
  double begun_ = 0;
  double enqueue_seconds_ = 0;
  double wait_seconds_ = 0;
};

}  // namespace subbyte::bench
