#include "subbyte/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "base/thread_pool.h"

namespace subbyte {
namespace {

/// Tasks one after the other, the last first: what a host whose threads are all busy may do.
class Backwards : public Executor {
 public:
  explicit Backwards(int size) : size_(size) {}
  int size() const override { return size_; }
  void run(int num_tasks, Task task) override {
    runs_.push_back(num_tasks);
    for (int i = num_tasks - 1; i >= 0; --i) task(i);
  }
  const std::vector<int>& runs() const { return runs_; }

 private:
  int size_;
  std::vector<int> runs_;
};

/// A new thread for every task.
class ThreadPerTask : public Executor {
 public:
  int size() const override { return 3; }
  void run(int num_tasks, Task task) override {
    std::vector<std::thread> threads;
    for (int i = 0; i < num_tasks; ++i) threads.emplace_back([i, task] { task(i); });
    for (std::thread& thread : threads) thread.join();
  }
};

struct Call {
  int64_t begin, end;
  int task;
};

/// The calls of a loop in the order of their ranges, which must cover [0, count) in multiples of
/// the grain.
std::vector<Call> calls_of(Executor& executor, int64_t count, int64_t grain) {
  std::vector<Call> calls;
  std::mutex mutex;
  executor.parallel_for(count, grain, [&](int64_t begin, int64_t end, int task) {
    const std::lock_guard lock(mutex);
    calls.push_back({begin, end, task});
  });
  std::ranges::sort(calls, {}, &Call::begin);
  int64_t next = 0;
  for (const Call& call : calls) {
    EXPECT_EQ(call.begin, next);
    EXPECT_LT(call.begin, call.end);
    EXPECT_TRUE(call.end % grain == 0 || call.end == count);
    next = call.end;
  }
  EXPECT_EQ(next, count);
  return calls;
}

TEST(Executor, every_executor_covers_a_loop_once) {
  Backwards backwards(3);
  ThreadPerTask per_task;
  ThreadPool pool(3);
  for (const int64_t count : {1, 2, 3, 10, 1000}) {
    for (const int64_t grain : {1, 4, 400}) {
      for (Executor* executor :
           {static_cast<Executor*>(&backwards), static_cast<Executor*>(&per_task),
            static_cast<Executor*>(&pool)}) {
        for (const Call& call : calls_of(*executor, count, grain)) {
          EXPECT_GE(call.task, 0);
          EXPECT_LT(call.task, executor->size());
        }
      }
    }
  }
}

TEST(Executor, a_task_takes_what_others_leave) {
  // The last task runs first here, and finds everything.
  Backwards executor(4);
  for (const Call& call : calls_of(executor, 100, 1)) EXPECT_EQ(call.task, 3);
}

TEST(Executor, pieces_of_a_run_are_long_at_first_and_short_at_the_end) {
  // One task finds everything: its own run first, then those of the others.
  Backwards executor(4);
  const std::vector<Call> calls = calls_of(executor, 1024, 2);
  const std::vector<int64_t> first_of_runs = {768, 0, 256, 512};
  for (const int64_t first : first_of_runs) {
    const auto begin = std::ranges::find(calls, first, &Call::begin);
    ASSERT_NE(begin, calls.end());
    std::vector<int64_t> lengths;
    for (auto call = begin; call != calls.end() && call->begin < first + 256; ++call) {
      lengths.push_back(call->end - call->begin);
    }
    EXPECT_EQ(lengths, (std::vector<int64_t>{128, 64, 32, 16, 8, 4, 2, 2}));
  }
}

TEST(Executor, a_task_begins_where_it_began_in_the_last_loop) {
  ThreadPerTask executor;
  for (int loop = 0; loop < 3; ++loop) {
    std::atomic<int> begun = 0;
    std::vector<int64_t> first(3, -1);
    executor.parallel_for(3072, 1, [&](int64_t begin, int64_t, int task) {
      if (first[task] >= 0) return;
      first[task] = begin;
      ++begun;
      while (begun < 3) std::this_thread::yield();  // so that none takes what is another's
    });
    EXPECT_EQ(first, (std::vector<int64_t>{0, 1024, 2048}));
  }
}

TEST(Executor, a_slow_task_gets_less) {
  // One task does not come back before the others have done all the rest.
  ThreadPool pool(2);
  std::atomic<int64_t> done = 0;
  std::atomic<bool> first = true;
  std::vector<int64_t> by_task(2);
  pool.parallel_for(64, 1, [&](int64_t begin, int64_t end, int task) {
    by_task[task] += end - begin;
    const bool slow = first.exchange(false);
    done += end - begin;
    while (slow && done < 64) std::this_thread::yield();
  });
  EXPECT_EQ(std::ranges::min(by_task), 64 / 4);
}

TEST(Executor, is_asked_for_no_more_tasks_than_there_are_chunks) {
  Backwards executor(8);
  EXPECT_EQ(calls_of(executor, 5, 2).size(), 3u);
  EXPECT_EQ(executor.runs(), (std::vector<int>{3}));
}

TEST(Executor, is_not_troubled_for_one_chunk) {
  Backwards executor(8);
  EXPECT_EQ(calls_of(executor, 5, 5).size(), 1u);
  EXPECT_TRUE(executor.runs().empty());
}

TEST(Executor, a_size_below_one_counts_as_one) {
  Backwards executor(0);
  EXPECT_EQ(calls_of(executor, 3, 1).size(), 1u);
}

TEST(FunctionRef, calls_what_it_refers_to) {
  int calls = 0;
  const auto add = [&calls](int n) { calls += n; };
  FunctionRef<void(int)> reference = add;
  const FunctionRef<void(int)> copy = reference;
  reference(2);
  copy(3);
  EXPECT_EQ(calls, 5);
  const FunctionRef<double(int)> converts = [](int n) { return n + 1; };
  EXPECT_EQ(converts(1), 2.0);
}

}  // namespace
}  // namespace subbyte
