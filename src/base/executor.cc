#include "subbyte/executor.h"

#include <algorithm>
#include <array>
#include <atomic>

namespace subbyte {
namespace {

/// The chunks of a loop, cut into runs. A task has a run of its own, from which it takes half of
/// what is left each time, so that it walks through memory in long pieces; then it takes from the
/// runs of others in the same way, so that all end at about the same time, however fast each was.
/// Task i of the next loop over as many chunks begins where task i began in this one: what a
/// processor has in its own cache it finds there again.
class Chunks {
 public:
  Chunks(int64_t count, int64_t tasks) : num_runs_(std::min(tasks, kMostRuns)) {
    for (int64_t i = 0; i < num_runs_; ++i) {
      Run& run = runs_[static_cast<std::size_t>(i)];
      run.next = count * i / num_runs_;
      run.end = count * (i + 1) / num_runs_;
    }
  }

  /// The next range of chunks; empty when there are none left.
  struct Range {
    int64_t begin, end;
  };
  Range claim(int task) {
    const Range own = claim_of(run_of(task));
    if (own.begin < own.end) return own;
    // All of them at once: at the end of a loop each is in the cache of another thread.
    for (int64_t i = 1; i < num_runs_; ++i) __builtin_prefetch(&run_of(task + i));
    for (int64_t i = 1; i < num_runs_; ++i) {
      const Range range = claim_of(run_of(task + i));
      if (range.begin < range.end) return range;
    }
    return {0, 0};
  }

 private:
  struct alignas(64) Run {
    int64_t next, end;
  };

  Run& run_of(int64_t task) { return runs_[static_cast<std::size_t>(task % num_runs_)]; }

  static Range claim_of(Run& run) {
    const std::atomic_ref<int64_t> next(run.next);
    int64_t begin = next.load(std::memory_order_relaxed);
    while (begin < run.end) {
      const int64_t part = (run.end - begin + 1) / 2;
      if (next.compare_exchange_weak(begin, begin + part, std::memory_order_relaxed)) {
        return {begin, begin + part};
      }
    }
    return {0, 0};
  }

  static constexpr int64_t kMostRuns = 64;  // more tasks share them

  int64_t num_runs_;
  std::array<Run, kMostRuns> runs_;  // those after num_runs_ are not touched
};

}  // namespace

void Executor::parallel_for(int64_t count, int64_t grain, Body body) {
  if (count <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  const int64_t num_chunks = count / grain + (count % grain != 0);
  const int64_t tasks = std::min<int64_t>(num_chunks, std::max(size(), 1));
  // One task is not worth waking anybody.
  if (tasks == 1) {
    body(0, count, 0);
    return;
  }
  Chunks chunks(num_chunks, tasks);
  run_some(static_cast<int>(tasks), [&](int task) {
    for (auto [begin, end] = chunks.claim(task); begin < end;) {
      body(begin * grain, std::min(count, end * grain), task);
      const auto next = chunks.claim(task);
      begin = next.begin;
      end = next.end;
    }
  });
}

}  // namespace subbyte
