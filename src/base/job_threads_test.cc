#include "base/job_threads.h"

#include <gtest/gtest.h>

#include <barrier>
#include <memory>
#include <vector>

namespace subbyte {
namespace {

struct Job {
  int number = 0;
};

TEST(JobThreads, all_threads_do_all_jobs_in_their_order) {
  std::vector<std::vector<int>> seen(3);
  JobThreads<Job> threads(
      3, [&](std::size_t thread, Job& job) { seen[thread].push_back(job.number); });
  for (int i = 0; i < 100; ++i) {
    threads.push(std::make_unique<Job>(Job{i}));
    if (threads.size() < 4) continue;
    EXPECT_EQ(threads.pop()->number, i - 3);
  }
  while (threads.size() > 0) threads.pop();
  for (const std::vector<int>& one : seen) {
    ASSERT_EQ(one.size(), 100u);
    for (int i = 0; i < 100; ++i) EXPECT_EQ(one[i], i);
  }
}

/// Each thread is at another job, and waits for the other.
TEST(JobThreads, are_at_different_jobs_at_once) {
  std::barrier<> both(2);
  JobThreads<Job> threads(2, [&](std::size_t thread, Job& job) {
    if (thread == 0 && job.number == 1) both.arrive_and_wait();
    if (thread == 1 && job.number == 0) both.arrive_and_wait();
  });
  threads.push(std::make_unique<Job>(Job{0}));
  threads.push(std::make_unique<Job>(Job{1}));
  EXPECT_EQ(threads.pop()->number, 0);
  EXPECT_EQ(threads.pop()->number, 1);
}

TEST(JobThreads, what_was_not_popped_is_done_at_the_end) {
  std::atomic<int> done = 0;
  {
    JobThreads<Job> threads(2, [&](std::size_t, Job&) { ++done; });
    for (int i = 0; i < 5; ++i) threads.push(std::make_unique<Job>(Job{i}));
  }
  EXPECT_EQ(done, 10);
}

}  // namespace
}  // namespace subbyte
