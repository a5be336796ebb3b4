#pragma once
// Threads that each do all jobs, one after the other in the order in which they came, so that one
// is at a job while another is still at the one before: the stages of a pipeline.
//
//   push 1   push 2   pop 1        push 3
//   thread 0   | job 1 | job 2 |     | job 3
//   thread 1           | job 1 | job 2 |

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace subbyte {

template <class Job>
class JobThreads {
 public:
  /// `work` is called on thread `thread`, and throws nothing. Throws std::system_error where the
  /// system gives no threads.
  JobThreads(std::size_t threads, std::function<void(std::size_t thread, Job& job)> work)
      : work_(std::move(work)), members_(threads) {
    try {
      for (std::size_t i = 0; i < threads; ++i)
        members_[i].thread = std::thread([this, i] { run(i); });
    } catch (...) {
      end();
      throw;
    }
  }
  JobThreads(const JobThreads&) = delete;
  JobThreads& operator=(const JobThreads&) = delete;
  /// Waits for the jobs that have come.
  ~JobThreads() { end(); }

  void push(std::unique_ptr<Job> job) {
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back(std::move(job));
      ++num_pushed_;
    }
    move_on(pushed_, num_pushed_);
  }

  /// Jobs that were not popped.
  int64_t size() const { return static_cast<int64_t>(num_pushed_ - num_popped_); }

  /// The oldest job, of which there is one, once all threads have done it.
  std::unique_ptr<Job> pop() {
    ++num_popped_;
    for (Member& member : members_) {
      for (uint32_t done = member.done; static_cast<int32_t>(done - num_popped_) < 0;) {
        member.done.wait(done);
        done = member.done;
      }
    }
    const std::lock_guard lock(mutex_);
    std::unique_ptr<Job> job = std::move(jobs_.front());
    jobs_.pop_front();
    return job;
  }

 private:
  struct alignas(64) Member {
    std::atomic<uint32_t> done{0};  // jobs
    std::thread thread;
  };

  static void move_on(std::atomic<uint32_t>& count, uint32_t next) {
    count = next;
    count.notify_all();
  }

  void run(std::size_t i) {
    Member& member = members_[i];
    for (uint32_t done = 0;; ++done) {
      pushed_.wait(done);
      Job* const job = at(done);
      if (job == nullptr) return;
      work_(i, *job);
      move_on(member.done, done + 1);
    }
  }

  /// A job by its number; nullptr: there will be no more.
  Job* at(uint32_t index) {
    const std::lock_guard lock(mutex_);
    return jobs_[index - (num_pushed_ - static_cast<uint32_t>(jobs_.size()))].get();
  }

  void end() {
    push(nullptr);
    for (Member& member : members_) {
      if (member.thread.joinable()) member.thread.join();
    }
  }

  std::function<void(std::size_t thread, Job& job)> work_;
  std::vector<Member> members_;
  std::atomic<uint32_t> pushed_{0};  // jobs that have come
  std::mutex mutex_;
  std::deque<std::unique_ptr<Job>> jobs_;  // guarded by the mutex
  uint32_t num_pushed_ = 0;                // the same, which the thread that pushes may read
  uint32_t num_popped_ = 0;
};

}  // namespace subbyte
