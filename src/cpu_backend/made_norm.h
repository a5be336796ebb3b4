#pragma once
// The sum and the norm before a product, which each thread makes for itself: none waits until one
// thread has made them, nor fetches what that has made.

#include <cstdint>
#include <span>

#include "kernels/cpu/execution.h"

namespace subbyte {

/// y = the RMS norm of sum = scale * (x + factor * delta), in rows of weight.size() numbers.
struct MadeNorm {
  std::span<float> y;
  std::span<float> sum;  // in memory of its own; empty without a delta: x is the sum
  std::span<const float> x;
  std::span<const float> delta;
  std::span<const float> weight;
  float eps = 0;
  float factor = 1;
  float scale = 1;
};

class NormMaker {
 public:
  NormMaker(const Execution& execution, const MadeNorm& norm)
      : kernels_(*execution.kernels().vectors), norm_(norm) {}

  /// As MakeRows says. Task 0 makes them in y and sum, the others in `room`.
  const float* operator()(int64_t first, int64_t count, int task, float* room);
  /// Makes the rows that task 0 was not asked for, as all may read y and sum now.
  void finish();

 private:
  int64_t cols() const { return std::ssize(norm_.weight); }
  void make(int64_t first, int64_t count, float* y, float* sum) const;

  const cpu::VectorKernels& kernels_;
  MadeNorm norm_;
  int64_t made_ = 0;  // rows, by task 0
};

}  // namespace subbyte
