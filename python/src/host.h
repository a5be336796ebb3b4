#pragma once
// The processors of this machine for matrices: one set of threads for the whole process.

#include <memory>
#include <mutex>

#include "cpu_backend/execution.h"

namespace subbyte::python {

/// The threads and kernels while it lives: nobody else's meanwhile.
class Host {
 public:
  /// Waits until nobody has them; made at the first call. Codes: those of Execution::create.
  static Result<Host> take();

  Execution& execution() { return *execution_; }

  /// How many threads there are from the next call on; 0: one for each processor.
  static void set_threads(int num_threads);
  /// In the child of a fork, where threads have not come along.
  static void forget();

 private:
  Host(std::unique_lock<std::mutex> lock, Execution* execution)
      : lock_(std::move(lock)), execution_(execution) {}

  std::unique_lock<std::mutex> lock_;
  Execution* execution_;
};

}  // namespace subbyte::python
