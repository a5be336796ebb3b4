#pragma once
// Where operators run: kernels of this machine on the threads of torch, as many as
// torch.get_num_threads() says. So nobody's threads wait for anybody else's, and what
// torch.set_num_threads() and the fork of a process mean to torch they mean here.

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "kernels/cpu/execution.h"

namespace subbyte::torch_operators {

/// An execution for one call, with buffers that earlier calls have left. Threads of Python that
/// call at the same time get one each.
class Machine {
 public:
  /// `work` is how many products of two numbers a call has: for few of them threads are not worth
  /// waking. Results do not depend on it. Codes: those of Execution::create().
  static Result<Machine> borrow(int64_t work = INT64_MAX);
  Machine(Machine&& other) noexcept = default;
  Machine& operator=(Machine&& other) = delete;
  ~Machine();

  Execution& execution() { return *execution_; }
  Executor& executor() { return execution_->pool(); }
  const cpu::Kernels& kernels() const { return execution_->kernels(); }

 private:
  Machine(std::unique_ptr<Executor> threads, std::unique_ptr<Execution> execution);

  std::unique_ptr<Executor> threads_;
  std::unique_ptr<Execution> execution_;
};

}  // namespace subbyte::torch_operators
