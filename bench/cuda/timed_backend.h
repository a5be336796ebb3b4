#pragma once
// A backend that notes when a step began, when its last operation was enqueued and when it was
// finished: where the host's time of a step goes.

#include "bench/timing.h"
#include "ops/forwarding_backend.h"

namespace subbyte::bench {

class TimedBackend : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  /// Seconds of the last step: from begin() to finish(), and in finish().
  double enqueue_seconds() const { return enqueued_ - begun_; }
  double wait_seconds() const { return finished_ - enqueued_; }

  void begin(const Batch& batch) override {
    begun_ = now();
    backend_.begin(batch);
  }
  Status finish(Logits& logits) override {
    enqueued_ = now();
    Status status = backend_.finish(logits);
    finished_ = now();
    return status;
  }

 private:
  double begun_ = 0;
  double enqueued_ = 0;
  double finished_ = 0;
};

}  // namespace subbyte::bench
