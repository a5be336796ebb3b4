#pragma once
// The library's own threads. A thread that waits spins for a moment, or as long as stay_awake()
// says, and then sleeps: operations of one token follow each other within microseconds, and a
// barrier costs less than one when no thread sleeps. The calling thread works too, so a pool of one
// has no threads.

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "subbyte/executor.h"

namespace subbyte {

inline constexpr int64_t kMaxThreads = 4096;

/// Checks for 0 (one for each processor) to kMaxThreads. Code execution.options.
Status check_num_threads(int64_t num_threads);

struct ThreadPoolOptions {
  int num_threads = 0;  // 0: one for each processor that this process may run on
  /// Thread i stays on the i-th of those processors (counted round when there are more threads).
  /// Thread 0 is the one that makes the pool: it is pinned until it destroys the pool, and threads
  /// that it starts in the meantime inherit that. Other threads that call run() are left alone.
  /// Where the system refuses, the thread runs as before.
  bool pin_threads = false;
};

class ThreadPool : public Executor {
 public:
  explicit ThreadPool(const ThreadPoolOptions& options);
  explicit ThreadPool(int num_threads = 0) : ThreadPool(ThreadPoolOptions{num_threads, false}) {}
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool() override;

  /// Threads that work, the calling one included; less than asked for when the system has no more.
  int size() const override;
  /// Task i runs on thread i.
  void run(int num_tasks, Task task) override;
  void run_some(int num_tasks, Task task) override;
  void stay_awake(bool awake) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Threads that a caller gave, or own ones.
inline std::shared_ptr<Executor> threads_or_own(std::shared_ptr<Executor> given) {
  return given != nullptr ? given : make_threads();
}

/// An executor that outlives all that it is given to.
inline std::shared_ptr<Executor> lent(Executor& executor) {
  return {std::shared_ptr<void>(), &executor};
}

}  // namespace subbyte
