#pragma once
// Threads for what would keep others waiting: reading JSON, templates, tokens.

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace subbyte::serve {

class Workers {
 public:
  Workers(int num_threads, std::size_t max_waiting);
  /// Ends when what was begun is done; the rest is dropped.
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  /// False where too much waits already.
  bool take(std::function<void()> work);

 private:
  void run();

  std::size_t max_waiting_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool ends_ = false;
  std::vector<std::thread> threads_;  // last, as they use what is above
};

}  // namespace subbyte::serve
