#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <chrono>
#include <thread>
#include <vector>

namespace subbyte {
namespace {

TEST(ThreadPool, loops_cover_everything_once) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    for (const int64_t count : {1, 2, 7, 8, 9, 64, 1000, 1001}) {
      for (const int64_t grain : {1, 4, 16, 5000}) {
        std::vector<int> calls(count);  // plain: no other task writes to a part of a loop
        pool.parallel_for(count, grain, [&](int64_t begin, int64_t end, int task) {
          ASSERT_GE(task, 0);
          ASSERT_LT(task, pool.size());
          for (int64_t i = begin; i < end; ++i) ++calls[i];
        });
        EXPECT_EQ(calls, std::vector<int>(count, 1)) << threads << " threads, grain " << grain;
      }
    }
  }
}

TEST(ThreadPool, nothing_to_do_calls_nobody) {
  ThreadPool pool(2);
  for (const int64_t count : {0, -3}) {
    pool.parallel_for(count, 4, [](int64_t, int64_t, int) { ADD_FAILURE(); });
  }
}

TEST(ThreadPool, task_numbers_are_threads) {
  ThreadPool pool(3);
  std::vector<std::thread::id> first(3), second(3);
  pool.run(3, [&](int task) { first[task] = std::this_thread::get_id(); });
  pool.run(3, [&](int task) { second[task] = std::this_thread::get_id(); });
  EXPECT_EQ(first, second);
  EXPECT_EQ(first[0], std::this_thread::get_id());
}

TEST(ThreadPool, some_tasks_may_be_left_out_but_none_runs_twice) {
  ThreadPool pool(4);
  for (int round = 0; round < 20000; ++round) {
    std::vector<int> calls(4);
    pool.run_some(1 + round % 4, [&](int task) { ++calls[task]; });
    ASSERT_EQ(calls[0], 1);
    for (int task = 0; task < 4; ++task) ASSERT_LE(calls[task], task <= round % 4 ? 1 : 0);
  }
}

TEST(ThreadPool, kinds_of_loops_may_take_turns) {
  ThreadPool pool(3);
  for (int round = 0; round < 5000; ++round) {
    std::vector<int> all(3);
    std::vector<int> some(3);
    pool.run_some(3, [&](int task) { ++some[task]; });
    pool.run(1 + round % 3, [&](int task) { ++all[task]; });
    ASSERT_EQ(all, (std::vector<int>{1, round % 3 > 0 ? 1 : 0, round % 3 > 1 ? 1 : 0}));
    ASSERT_EQ(some[0], 1);
  }
}

TEST(ThreadPool, threads_that_stay_awake_work_and_sleep_again) {
  ThreadPool pool(2);
  for (int round = 0; round < 3; ++round) {
    pool.stay_awake(round % 2 == 0);
    for (int i = 0; i < 100; ++i) {
      std::vector<int> done(2);
      pool.run(2, [&](int task) { done[task] = 1; });
      EXPECT_EQ(done, std::vector<int>(2, 1));
      if (i % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
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
    // One task takes far longer than anybody spins, so the thread of the other sleeps.
    std::vector<double> sums(2);
    pool.run(2, [&](int task) {
      const int steps = task == round % 2 ? 200000 : 1;
      for (int i = 1; i <= steps; ++i) sums[task] += 1.0 / i;
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
    pool.run(threads, [&](int task) { ++sums[task]; });
  }
  EXPECT_EQ(sums, std::vector<int64_t>(threads, 200));
}

TEST(ThreadPool, fewer_tasks_than_threads_leave_no_thread_out) {
  ThreadPool pool(4);
  std::vector<int64_t> sums(4);
  for (int round = 0; round < 1000; ++round) {
    pool.run(1 + round % 4, [&](int task) { ++sums[task]; });
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
