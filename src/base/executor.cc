#include "base/executor.h"

#include <algorithm>
#include <atomic>

namespace subbyte {
namespace {

/// The chunks of a loop, claimed in order by the tasks that run it.
class Chunks {
 public:
  Chunks(int64_t count, int64_t tasks) : count_(count), tasks_(tasks) {}

  /// The next range of chunks; empty when there are none left. While many are left a task takes a
  /// part of them, so that it walks through memory in long runs; the last ones go one by one, so
  /// that all tasks end at about the same time, however fast each was.
  struct Range {
    int64_t begin, end;
  };
  Range claim() {
    int64_t begin = next_.load(std::memory_order_relaxed);
    while (begin < count_) {
      const int64_t part = std::max<int64_t>(1, (count_ - begin) / (kParts * tasks_));
      if (next_.compare_exchange_weak(begin, begin + part, std::memory_order_relaxed)) {
        return {begin, begin + part};
      }
    }
    return {count_, count_};
  }

 private:
  // Of what a task takes when all are as fast as it: more parts cost more claims, fewer leave more
  // to wait for at the end.
  static constexpr int64_t kParts = 2;

  int64_t count_;
  int64_t tasks_;
  std::atomic<int64_t> next_{0};
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
    for (auto [begin, end] = chunks.claim(); begin < end;) {
      body(begin * grain, std::min(count, end * grain), task);
      const auto next = chunks.claim();
      begin = next.begin;
      end = next.end;
    }
  });
}

}  // namespace subbyte
