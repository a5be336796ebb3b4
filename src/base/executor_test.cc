#include "base/executor.h"

#include <gtest/gtest.h>

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

std::vector<int> shares_of(Executor& executor, int64_t count, int64_t grain) {
  std::vector<int> share(count, -1);
  executor.parallel_for(count, grain, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t i = begin; i < end; ++i) share[i] = thread;
  });
  return share;
}

TEST(Executor, every_executor_divides_a_loop_alike) {
  Backwards backwards(3);
  ThreadPerTask per_task;
  ThreadPool pool(3);
  for (const int64_t count : {1, 2, 3, 10, 1000}) {
    for (const int64_t grain : {1, 4, 400}) {
      const std::vector<int> expected = shares_of(backwards, count, grain);
      EXPECT_EQ(shares_of(per_task, count, grain), expected) << count << " by " << grain;
      EXPECT_EQ(shares_of(pool, count, grain), expected) << count << " by " << grain;
    }
  }
}

TEST(Executor, is_asked_for_no_more_tasks_than_there_are_chunks) {
  Backwards executor(8);
  EXPECT_EQ(shares_of(executor, 5, 2), (std::vector<int>{0, 0, 1, 1, 2}));
  EXPECT_EQ(executor.runs(), (std::vector<int>{3}));
}

TEST(Executor, is_not_troubled_for_one_chunk) {
  Backwards executor(8);
  EXPECT_EQ(shares_of(executor, 5, 5), (std::vector<int>(5, 0)));
  EXPECT_TRUE(executor.runs().empty());
}

TEST(Executor, a_size_below_one_counts_as_one) {
  Backwards executor(0);
  EXPECT_EQ(shares_of(executor, 3, 1), (std::vector<int>(3, 0)));
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
