#pragma once
// Who runs data-parallel loops. The library needs nothing but this interface, so that a program
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
// other or at once. Which task computes what is not determined: tasks claim the next part of a loop
// when they have done the last. What is computed does not depend on it: each number is computed by
// one task, in an order that does not depend on the division.

#include <cstdint>
#include <memory>

#include "subbyte/function_ref.h"

SUBBYTE_BEGIN_NAMESPACE

class Executor {
 public:
  using Task = FunctionRef<void(int task)>;
  using Body = FunctionRef<void(int64_t begin, int64_t end, int task)>;

  virtual ~Executor() = default;

  /// How many tasks can run at once, at least 1. Must not change.
  virtual int size() const = 0;

  /// Calls task(0) ... task(num_tasks - 1), each once, and returns when all have returned; what
  /// they wrote is visible to the caller then. 1 <= num_tasks <= size().
  virtual void run(int num_tasks, Task task) = 0;

  /// The same for tasks of which any may be left out but task(0), because those that run do the
  /// work of all: what parallel_for() asks for. Tasks that could not start in time are left out, so
  /// that nobody waits for a thread that the system has put aside.
  virtual void run_some(int num_tasks, Task task) { run(num_tasks, task); }

  /// Until stay_awake(false) loops follow each other closely, so that threads that wait had better
  /// not sleep. Executors may ignore it.
  virtual void stay_awake(bool) {}

  /// Calls body(begin, end, task) for disjoint ranges that cover [0, count), each a multiple of
  /// `grain` long except the last, and returns when all are done. `task` is in [0, size()): calls
  /// with the same number follow each other, so that they may share a buffer.
  /// Not reentrant: body must not call the executor, nor may two threads at a time. Exceptions in
  /// body are not allowed.
  void parallel_for(int64_t count, int64_t grain, Body body);
};

/// Threads of the library's own: 0 is one for each processor that this process may run on. With
/// `pin` each stays on a processor of its own, and the calling thread, too, until the last owner of
/// the result lets go of it. One loop at a time: objects that share an executor are used by one
/// thread at a time.
std::shared_ptr<Executor> make_threads(int num_threads = 0, bool pin = false);

SUBBYTE_END_NAMESPACE
