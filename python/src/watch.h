#pragma once
// Long work that Ctrl-C ends and that says how far it is. Between two steps of it Python's signal
// handlers get their turn; what they raise goes through the library as an exception, which leaves
// it as it leaves a want of memory: with everything released.

#include <nanobind/nanobind.h>

#include <chrono>
#include <cstdint>
#include <functional>

#include "subbyte/executor.h"

namespace subbyte::python {

/// Calls the signal handlers of Python that are due, and throws what they raise. Without the GIL.
void run_signal_handlers();

/// Says whether the interpreter ends, so that other threads never come back. Without the GIL.
bool is_interpreter_ending();

class Watch {
 public:
  /// `on_progress(done, total)` is called by progress(); None: nobody is told. With the GIL, as its
  /// end; all else without.
  explicit Watch(nanobind::object on_progress) : on_progress_(std::move(on_progress)) {}
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// Throws what a signal handler raises. Handlers are asked 20 times a second at most.
  void check();
  /// The same, and tells how far it is: 20 times a second at most, and in the end.
  void progress(uint64_t done, uint64_t total);
  std::function<void(uint64_t, uint64_t)> as_progress() {
    return [this](uint64_t done, uint64_t total) { progress(done, total); };
  }

 private:
  using Clock = std::chrono::steady_clock;
  bool is_due();

  nanobind::object on_progress_;
  Clock::time_point last_ = Clock::now();
};

/// Threads of another executor, with a check before each loop.
class WatchedExecutor : public Executor {
 public:
  WatchedExecutor(Executor& host, Watch& watch) : host_(host), watch_(watch) {}

  int size() const override { return host_.size(); }
  void run(int num_tasks, Task task) override {
    watch_.check();
    host_.run(num_tasks, task);
  }
  void run_some(int num_tasks, Task task) override {
    watch_.check();
    host_.run_some(num_tasks, task);
  }
  void stay_awake(bool awake) override { host_.stay_awake(awake); }

 private:
  Executor& host_;
  Watch& watch_;
};

}  // namespace subbyte::python
