#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <mutex>
#include <vector>

namespace subbyte {
namespace {

struct Call {
  int64_t begin;
  int64_t end;
  int thread;
  bool operator==(const Call&) const = default;
};

std::vector<Call> calls_of(Executor& pool, int64_t count, int64_t grain) {
  std::vector<Call> by_thread(pool.size(), Call{0, 0, -1});
  std::mutex mutex;
  pool.parallel_for(count, grain, [&](int64_t begin, int64_t end, int thread) {
    const std::lock_guard lock(mutex);
    ASSERT_GE(thread, 0);
    ASSERT_LT(thread, pool.size());
    ASSERT_EQ(by_thread[thread].thread, -1) << "called twice";
    by_thread[thread] = {begin, end, thread};
  });
  std::vector<Call> calls;
  for (const Call& call : by_thread) {
    if (call.thread >= 0) calls.push_back(call);
  }
  return calls;
}

TEST(ThreadPool, ranges_cover_everything_once_in_multiples_of_the_grain) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    for (const int64_t count : {1, 2, 7, 8, 9, 64, 1000, 1001}) {
      for (const int64_t grain : {1, 4, 16, 5000}) {
        int64_t next = 0;
        for (const Call& call : calls_of(pool, count, grain)) {
          EXPECT_EQ(call.begin, next);
          EXPECT_LT(call.begin, call.end);
          EXPECT_TRUE(call.end == count || (call.end - call.begin) % grain == 0);
          next = call.end;
        }
        EXPECT_EQ(next, count) << threads << " threads, grain " << grain;
      }
    }
  }
}

TEST(ThreadPool, shares_differ_by_at_most_one_grain) {
  ThreadPool pool(4);
  const std::vector<Call> expected = {{0, 24, 0}, {24, 48, 1}, {48, 64, 2}, {64, 73, 3}};
  EXPECT_EQ(calls_of(pool, 73, 8), expected);
}

TEST(ThreadPool, nothing_to_do_calls_nobody) {
  ThreadPool pool(2);
  EXPECT_TRUE(calls_of(pool, 0, 4).empty());
  EXPECT_TRUE(calls_of(pool, -3, 4).empty());
}

TEST(ThreadPool, a_grain_below_one_counts_as_one) {
  ThreadPool pool(2);
  const std::vector<Call> expected = {{0, 2, 0}, {2, 4, 1}};
  EXPECT_EQ(calls_of(pool, 4, 0), expected);
}

TEST(ThreadPool, zero_means_the_processors_of_this_process) {
  cpu_set_t set;
  CPU_ZERO(&set);
  ASSERT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  EXPECT_EQ(ThreadPool(0).size(), CPU_COUNT(&set));
}

TEST(ThreadPool, results_of_one_loop_are_seen_by_the_next) {
  // Plain memory on purpose: the thread sanitizer sees a missing order, and wrong sums show it.
  ThreadPool pool(3);
  std::vector<int64_t> values(96, 1);
  std::vector<int64_t> next(96);
  for (int round = 0; round < 2000; ++round) {
    pool.parallel_for(96, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) next[i] = values[95 - i] + 1;
    });
    values.swap(next);
  }
  for (const int64_t value : values) ASSERT_EQ(value, 2001);
}

TEST(ThreadPool, wakes_after_it_fell_asleep) {
  ThreadPool pool(2);
  for (int round = 0; round < 20; ++round) {
    // The caller's share takes far longer than anybody spins, so the other thread sleeps.
    std::vector<double> sums(2);
    pool.parallel_for(2, 1, [&](int64_t begin, int64_t, int) {
      const int steps = begin == round % 2 ? 200000 : 1;
      for (int i = 1; i <= steps; ++i) sums[begin] += 1.0 / i;
    });
    EXPECT_NEAR(sums[round % 2], 12.783290810429625, 1e-9);
    EXPECT_EQ(sums[1 - round % 2], 1.0);
  }
}

TEST(ThreadPool, more_threads_than_processors_finish) {
  const int threads = 3 * ThreadPool(0).size();
  ThreadPool pool(threads);
  std::vector<int64_t> sums(threads);
  for (int round = 0; round < 200; ++round) {
    pool.parallel_for(threads, 1, [&](int64_t begin, int64_t, int) { ++sums[begin]; });
  }
  EXPECT_EQ(sums, std::vector<int64_t>(threads, 200));
}

TEST(ThreadPool, loops_of_fewer_chunks_than_threads_leave_nobody_behind) {
  ThreadPool pool(4);
  std::vector<int64_t> sums(4);
  for (int round = 0; round < 1000; ++round) {
    const int64_t count = 1 + round % 4;
    pool.parallel_for(count, 1, [&](int64_t begin, int64_t, int) { ++sums[begin]; });
  }
  EXPECT_EQ(sums, (std::vector<int64_t>{1000, 750, 500, 250}));
}

std::vector<int> processors_of_this_thread() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> processors;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return processors;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) processors.push_back(i);
  }
  return processors;
}

TEST(ThreadPool, pinned_threads_have_one_processor_each) {
  const std::vector<int> allowed = processors_of_this_thread();
  const int size = static_cast<int>(allowed.size());
  for (const int threads : {size, 2 * size + 1}) {
    ThreadPool pool({.num_threads = threads, .pin_threads = true});
    std::vector<std::vector<int>> found(threads);
    pool.run(threads, [&](int thread) { found[thread] = processors_of_this_thread(); });
    for (int thread = 0; thread < threads; ++thread) {
      EXPECT_EQ(found[thread], std::vector<int>{allowed[thread % size]}) << thread;
    }
  }
  EXPECT_EQ(processors_of_this_thread(), allowed) << "the thread that made the pool stays pinned";
}

TEST(ThreadPool, threads_that_are_not_pinned_may_run_anywhere) {
  const std::vector<int> allowed = processors_of_this_thread();
  ThreadPool pool(2);
  pool.run(2, [&](int) { EXPECT_EQ(processors_of_this_thread(), allowed); });
}

TEST(ThreadPool, unused_pools_end) {
  for (int i = 0; i < 50; ++i) ThreadPool pool(4);
}

}  // namespace
}  // namespace subbyte
