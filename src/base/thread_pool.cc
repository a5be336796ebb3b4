#include "base/thread_pool.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

namespace subbyte {
namespace {

// Waking a sleeping thread costs tens of microseconds, and operations of one token follow each
// other within a few: so a thread that waits spins before it sleeps. No longer than this unless it
// is to stay awake, since another thread may need the processor.
constexpr std::chrono::microseconds kSpin{40};

/// The processors that the calling thread may run on, in ascending order; empty when unknown.
std::vector<int> allowed_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> processors;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return processors;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) processors.push_back(i);
  }
  return processors;
}

void pin_to(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  sched_setaffinity(0, sizeof(set), &set);
}

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// A number that one thread moves on and others wait for.
struct Gate {
  std::atomic<uint32_t> value{0};
  std::atomic<uint32_t> sleepers{0};

  /// Whoever goes to sleep first counts itself and then looks at the value, whoever moves the value
  /// on then looks at the count; both in the one order of all such operations, so that one of the
  /// two sees the other.
  void set(uint32_t next) {
    value.store(next);
    if (sleepers.load() != 0) value.notify_all();
  }

  /// Returns the value as soon as it is no longer `old`. Sleeps once kSpin has gone by since
  /// `awake` was last seen true, or at once without `spin`.
  uint32_t wait(uint32_t old, bool spin, const std::atomic<bool>& awake) {
    uint32_t found = value.load(std::memory_order_acquire);
    if (found != old) return found;
    if (spin) {
      auto now = std::chrono::steady_clock::now();
      auto deadline = now + kSpin;
      while (now < deadline) {
        for (int i = 0; i < 32; ++i) {
          relax();
          found = value.load(std::memory_order_acquire);
          if (found != old) return found;
        }
        now = std::chrono::steady_clock::now();
        if (awake.load(std::memory_order_relaxed)) deadline = now + kSpin;
      }
    }
    sleepers.fetch_add(1);
    value.wait(old);
    sleepers.fetch_sub(1);
    return value.load(std::memory_order_acquire);
  }
};

/// The last job that a thread has done. A line for each: a barrier moves every line once and does
/// not get slower by threads that fight for one counter.
struct alignas(64) Finished {
  Gate gate;
};

/// Written before the gate moves on, read after: in one line with it, so that it comes along.
struct alignas(64) Job {
  Gate gate;
  int num_tasks = 0;
  std::optional<Executor::Task> task;  // none: go home
};

}  // namespace

struct ThreadPool::State {
  explicit State(int num_threads)
      : size(num_threads), threads(num_threads - 1), finished(num_threads - 1) {}

  int size;
  bool spin = true;
  std::atomic<bool> awake{false};
  std::vector<std::thread> threads;  // thread i is threads[i - 1]
  std::vector<Finished> finished;
  Job job;

  cpu_set_t unpinned;       // the processors of the thread that made the pool
  pid_t pinned_thread = 0;  // that thread; 0: it is not pinned

  void work(int thread) {
    for (uint32_t seen = 0;;) {
      seen = job.gate.wait(seen, spin, awake);
      if (!job.task) return;
      if (thread < job.num_tasks) (*job.task)(thread);
      finished[thread - 1].gate.set(seen);
    }
  }

  void start(const std::vector<int>& processors, bool pin) {
    int started = 1;
    try {
      for (; started < size; ++started) {
        const int processor = pin ? processors[started % processors.size()] : -1;
        threads[started - 1] = std::thread([this, thread = started, processor] {
          if (processor >= 0) pin_to(processor);
          work(thread);
        });
      }
    } catch (const std::system_error&) {
      // No more threads to be had: those that run are a pool too. Nobody reads size before a job.
      size = started;
    }
  }
};

ThreadPool::ThreadPool(const ThreadPoolOptions& options) {
  const std::vector<int> processors = allowed_processors();
  const int available =
      std::max(1, static_cast<int>(processors.empty() ? std::thread::hardware_concurrency()
                                                      : processors.size()));
  state_ = std::make_unique<State>(options.num_threads > 0 ? options.num_threads : available);
  // With more threads than processors, one that spins keeps another from working.
  state_->spin = state_->size <= available;
  const bool pin = options.pin_threads && !processors.empty();
  state_->start(processors, pin);
  if (pin && sched_getaffinity(0, sizeof(state_->unpinned), &state_->unpinned) == 0) {
    pin_to(processors[0]);
    state_->pinned_thread = gettid();
  }
}

ThreadPool::~ThreadPool() {
  Job& job = state_->job;
  job.task.reset();
  job.gate.set(job.gate.value.load() + 1);
  for (std::thread& thread : state_->threads) {
    if (thread.joinable()) thread.join();
  }
  // Not from another thread: the number may be that of a new one by now.
  if (state_->pinned_thread == gettid()) {
    sched_setaffinity(0, sizeof(state_->unpinned), &state_->unpinned);
  }
}

void ThreadPool::stay_awake(bool awake) {
  state_->awake.store(awake, std::memory_order_relaxed);
}

int ThreadPool::size() const {
  return state_->size;
}

void ThreadPool::run(int num_tasks, Task task) {
  if (num_tasks > 1) {
    State& state = *state_;
    state.job.task = task;
    state.job.num_tasks = num_tasks;
    const uint32_t last = state.job.gate.value.load(std::memory_order_relaxed);
    state.job.gate.set(last + 1);
    task(0);
    for (int i = 0; i + 1 < state.size; ++i) {
      state.finished[i].gate.wait(last, state.spin, state.awake);
    }
    return;
  }
  task(0);
}

}  // namespace subbyte
