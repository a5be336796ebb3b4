#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <system_error>
#include <thread>
#include <vector>

namespace subbyte {
namespace {

// Operations of one token follow each other within microseconds, and waking a sleeping thread
// costs about fifty: so whoever waits looks for a moment before it sleeps.
constexpr std::chrono::microseconds kSpin{40};

int available_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

/// Returns when `word` is no longer `old`.
void wait_while_equal(const std::atomic<uint32_t>& word, uint32_t old) {
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (word.load(std::memory_order_acquire) != old) return;
      __builtin_ia32_pause();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  word.wait(old, std::memory_order_acquire);
}

}  // namespace

struct ThreadPool::State {
  using Body = std::function<void(int64_t, int64_t, int)>;

  int size = 1;
  std::vector<std::thread> workers;

  // The job. Written before `epoch` moves on, read after.
  const Body* body = nullptr;  // nullptr: go home
  int64_t count = 0;
  int64_t grain = 1;

  // Each on a line of its own: the workers watch one while they write the other.
  alignas(64) std::atomic<uint32_t> epoch{0};
  alignas(64) std::atomic<uint32_t> running{0};

  void publish() {
    running.store(static_cast<uint32_t>(size - 1), std::memory_order_relaxed);
    epoch.fetch_add(1, std::memory_order_release);
    epoch.notify_all();
  }

  /// Chunks of one grain, dealt out in `size` runs whose lengths differ by at most one.
  void run_share(int thread) const {
    const int64_t chunks = count / grain + (count % grain != 0);
    const int64_t each = chunks / size;
    const int64_t longer = chunks % size;
    const int64_t first = thread * each + std::min<int64_t>(thread, longer);
    const int64_t last = first + each + (thread < longer ? 1 : 0);
    if (first < last) (*body)(first * grain, std::min(count, last * grain), thread);
  }

  void work(int thread) {
    for (uint32_t seen = 0;; ++seen) {
      wait_while_equal(epoch, seen);
      if (body == nullptr) return;
      run_share(thread);
      if (running.fetch_sub(1, std::memory_order_acq_rel) == 1) running.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int num_threads) : state_(std::make_unique<State>()) {
  state_->size = num_threads > 0 ? num_threads : available_processors();
  state_->workers.reserve(state_->size - 1);
  try {
    for (int thread = 1; thread < state_->size; ++thread) {
      state_->workers.emplace_back([state = state_.get(), thread] { state->work(thread); });
    }
  } catch (const std::system_error&) {
    // No more threads to be had: those that run are a pool too. Nobody reads size before a job.
    state_->size = static_cast<int>(state_->workers.size()) + 1;
  }
}

ThreadPool::~ThreadPool() {
  state_->body = nullptr;
  state_->publish();
  for (std::thread& worker : state_->workers) worker.join();
}

int ThreadPool::size() const {
  return state_->size;
}

void ThreadPool::parallel_for(int64_t count, int64_t grain,
                              const std::function<void(int64_t, int64_t, int)>& body) {
  if (count <= 0) return;
  state_->grain = std::max<int64_t>(grain, 1);
  // One chunk is not worth waking anybody.
  if (state_->size == 1 || count <= state_->grain) {
    body(0, count, 0);
    return;
  }
  state_->body = &body;
  state_->count = count;
  state_->publish();
  state_->run_share(0);
  for (uint32_t left = 0; (left = state_->running.load(std::memory_order_acquire)) != 0;) {
    wait_while_equal(state_->running, left);
  }
}

}  // namespace subbyte
