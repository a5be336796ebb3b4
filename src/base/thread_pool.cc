#include "base/thread_pool.h"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/gate.h"

namespace subbyte {
namespace {

// Waking a sleeping thread costs tens of microseconds, and operations of one token follow each
// other within a few: so a thread that waits spins before it sleeps. No longer than this unless it
// is to stay awake, since another thread may need the processor.
constexpr std::chrono::microseconds kSpin{40};

/// Threads that are started while this lives take no signals from outside. Those come to threads of
/// the program, so that a handler runs while the thread that it interrupts makes nothing.
class WithoutSignals {
 public:
  WithoutSignals() {
    sigset_t outside;
    ::sigfillset(&outside);
    for (const int own : {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP}) {
      ::sigdelset(&outside, own);
    }
    ::pthread_sigmask(SIG_BLOCK, &outside, &previous_);
  }
  WithoutSignals(const WithoutSignals&) = delete;
  WithoutSignals& operator=(const WithoutSignals&) = delete;
  ~WithoutSignals() { ::pthread_sigmask(SIG_SETMASK, &previous_, nullptr); }

 private:
  sigset_t previous_;
};

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

/// What a thread tells the one that calls run(). A line for each: a barrier moves every line once
/// and does not get slower by threads that fight for one counter.
struct alignas(64) Worker {
  /// The last job that the thread has joined, or that the caller has closed before it did: whoever
  /// sets it first decides.
  std::atomic<uint32_t> ticket{0};
  Gate finished;  // the last job that it has done

  /// False when `job` is joined or closed, or over long ago.
  bool take(uint32_t job) {
    uint32_t last = ticket.load();
    const bool newer = static_cast<int32_t>(job - last) > 0;
    return newer && ticket.compare_exchange_strong(last, job);
  }
};

/// Written before the gate moves on, read after: in one line with it, so that it comes along.
struct alignas(64) Job {
  Gate gate;
  std::optional<Executor::Task> task;  // none: go home
};

}  // namespace

Status check_num_threads(int64_t num_threads) {
  if (num_threads >= 0 && num_threads <= kMaxThreads) return {};
  return Error{"execution.options", "expected 0 to " + std::to_string(kMaxThreads) +
                                        " threads, found " + std::to_string(num_threads)};
}

struct ThreadPool::State {
  explicit State(int num_threads)
      : size(num_threads), threads(num_threads - 1), workers(num_threads - 1) {}

  int size;
  std::chrono::microseconds spin = kSpin;
  std::atomic<bool> awake{false};
  std::vector<std::thread> threads;  // thread i is threads[i - 1]
  std::vector<Worker> workers;
  Job job;

  cpu_set_t unpinned;       // the processors of the thread that made the pool
  pid_t pinned_thread = 0;  // that thread; 0: it is not pinned

  void work(int thread) {
    Worker& worker = workers[thread - 1];
    for (uint32_t seen = 0;;) {
      seen = job.gate.wait(seen, spin, awake);
      if (!worker.take(seen)) continue;  // closed, or not for this thread
      if (!job.task) return;
      (*job.task)(thread);
      worker.finished.set(seen);
    }
  }

  /// Runs the tasks of threads 1 to num_tasks - 1; with `all`, waits for those that have not
  /// started either.
  void run(int num_tasks, Executor::Task task, bool all) {
    const uint32_t number = job.gate.value.load(std::memory_order_relaxed) + 1;
    for (int i = num_tasks; i < size; ++i) workers[i - 1].take(number);
    job.task = task;
    job.gate.set(number);
    task(0);
    // All lines at once: one after the other they would come as slowly as the loop reads them.
    for (int i = 1; i < num_tasks; ++i) __builtin_prefetch(&workers[i - 1]);
    for (int i = 1; i < num_tasks; ++i) {
      Worker& worker = workers[i - 1];
      if (!all && worker.take(number)) continue;
      for (uint32_t done = worker.finished.value.load(std::memory_order_acquire); done != number;) {
        done = worker.finished.wait(done, spin, awake);
      }
    }
  }

  void start(const std::vector<int>& processors, bool pin) {
    const WithoutSignals without_signals;
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
      // No more threads: those that run are a pool too. None of them reads size before a job.
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
  if (state_->size > available) state_->spin = {};
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
  num_tasks > 1 ? state_->run(num_tasks, task, true) : task(0);
}

void ThreadPool::run_some(int num_tasks, Task task) {
  num_tasks > 1 ? state_->run(num_tasks, task, false) : task(0);
}

}  // namespace subbyte

SUBBYTE_BEGIN_NAMESPACE

std::shared_ptr<Executor> make_threads(int num_threads, bool pin) {
  return std::make_shared<ThreadPool>(ThreadPoolOptions{num_threads, pin});
}

SUBBYTE_END_NAMESPACE
