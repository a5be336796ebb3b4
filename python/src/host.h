#pragma once
// The processors of this machine for matrices: one set of threads for the whole process.

#include <memory>

#include "kernels/cpu/execution.h"
#include "turns.h"

namespace subbyte::python {

/// The threads and kernels while it lives: nobody else's meanwhile.
class Host {
 public:
  /// Waits until nobody has them; made at the first call. Codes: those of Turns::take and of
  /// Execution::create.
  static Result<Host> take();

  Execution& execution() { return *execution_; }

  /// How many threads there are from the next call on; 0: one for each processor. Codes: those of
  /// Turns::take.
  static Status set_threads(int num_threads);
  /// In the child of a fork, where threads have not come along.
  static void forget();

 private:
  Host(Turns::Turn turn, Execution* execution) : turn_(std::move(turn)), execution_(execution) {}

  Turns::Turn turn_;
  Execution* execution_;
};

}  // namespace subbyte::python
