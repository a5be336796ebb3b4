#include "parallel/rank_threads.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace subbyte {

struct RankThreads::State {
  std::mutex mutex;
  std::condition_variable has_work, has_finished;
  const FunctionRef<void(int)>* work = nullptr;
  uint64_t round = 0;  // of work; guarded, as all here
  int running = 0;
  bool ends = false;
  std::vector<std::thread> threads;

  void serve(int rank) {
    uint64_t done = 0;
    std::unique_lock lock(mutex);
    while (true) {
      has_work.wait(lock, [&] { return ends || round > done; });
      if (ends) return;
      done = round;
      lock.unlock();
      (*work)(rank);
      lock.lock();
      if (--running == 0) has_finished.notify_one();
    }
  }
};

RankThreads::RankThreads(int ranks) : state_(std::make_unique<State>()) {
  for (int rank = 1; rank < ranks; ++rank) {
    state_->threads.emplace_back([this, rank] { state_->serve(rank); });
  }
}

RankThreads::~RankThreads() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->ends = true;
  }
  state_->has_work.notify_all();
  for (std::thread& thread : state_->threads) thread.join();
}

void RankThreads::run(FunctionRef<void(int)> work) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->work = &work;
    state_->running = static_cast<int>(state_->threads.size());
    ++state_->round;
  }
  state_->has_work.notify_all();
  work(0);
  std::unique_lock lock(state_->mutex);
  state_->has_finished.wait(lock, [&] { return state_->running == 0; });
}

}  // namespace subbyte
