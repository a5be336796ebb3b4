#pragma once
// A backend whose host has no memory in the middle of a step.

#include <new>

#include "ops/forwarding_backend.h"

namespace subbyte::testing {

class ThrowingBackend : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  void attend(Tensor y, Tensor qkv, const AttentionShape& shape, int64_t layer,
              const Vector& sinks) override {
    if (--until_ == 0) throw std::bad_alloc();
    backend_.attend(y, qkv, shape, layer, sinks);
  }
  /// Once, after so many times attend().
  void throw_after(int operations) { until_ = operations + 1; }

 private:
  int until_ = -1;
};

}  // namespace subbyte::testing
