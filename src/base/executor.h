#pragma once
// Who runs data-parallel loops. The library asks for nothing but this interface, so that a program
// with threads of its own (TBB, OpenMP, a server's pool) can lend them:
//
//   class HostExecutor : public subbyte::Executor {
//    public:
//     int size() const override { return arena_.max_concurrency(); }
//     void run(int num_tasks, Task task) override {
//       arena_.execute([&] { tbb::parallel_for(0, num_tasks, [&](int i) { task(i); }); });
//     }
//   };
//
// Tasks do not wait for each other, so they may run on any threads, in any order, one after the
// other or at once. What a loop computes does not depend on it: work is divided statically, and
// each number is computed by one task, in an order that does not depend on the division.

#include <cstdint>

#include "base/function_ref.h"

namespace subbyte {

class Executor {
 public:
  using Task = FunctionRef<void(int task)>;
  using Body = FunctionRef<void(int64_t begin, int64_t end, int thread)>;

  virtual ~Executor() = default;

  /// In how many shares a loop is divided, at least 1: as many as can run at once. Must not change.
  virtual int size() const = 0;

  /// Calls task(0) ... task(num_tasks - 1), each once, and returns when all have returned; what
  /// they wrote is visible to the caller then. 1 <= num_tasks <= size().
  virtual void run(int num_tasks, Task task) = 0;

  /// Calls body(begin, end, thread) for disjoint ranges that cover [0, count), each a multiple of
  /// `grain` long except the last, and returns when all are done. `thread` is the number of the
  /// share, in [0, size()): no two calls of a loop have the same.
  /// Not reentrant: body must not call the executor, nor may two threads at a time. Exceptions in
  /// body are not allowed.
  void parallel_for(int64_t count, int64_t grain, Body body);
};

}  // namespace subbyte
