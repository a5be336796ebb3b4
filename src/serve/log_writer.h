#pragma once
// A thread that writes lines of a log, so that a reader who takes none keeps nobody waiting.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

namespace subbyte::serve {

class LogWriter {
 public:
  /// `write` is called in another thread, and may wait.
  explicit LogWriter(std::function<void(const std::string&)> write);
  /// Waits for what is left, a second at most.
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  /// A line that finds kMaxLines before it is dropped; `dropped`: how many were before this one.
  using Line = std::function<std::string(int64_t dropped)>;
  void put(const Line& line);

  static constexpr std::size_t kMaxLines = 1024;

 private:
  struct State {
    std::function<void(const std::string&)> write;
    std::mutex mutex;  // of what follows
    std::condition_variable changed;
    std::deque<std::string> lines;
    int64_t num_dropped = 0;
    bool ends = false;
    bool is_done = false;
  };
  static void run(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;  // the thread's, too, which may outlive this in a write
};

}  // namespace subbyte::serve
