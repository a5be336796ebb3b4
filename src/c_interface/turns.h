#pragma once
// Turns that threads take on a handle.

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "base/status.h"

namespace subbyte::c {

/// Lets one thread at a time use something. A call in whose turn a function of the caller's runs is
/// not over yet, so that a call of that function would wait for itself: it is refused.
class Turns {
 public:
  /// The name of the handle, and the code of what is refused; string literals.
  Turns(const char* handle, const char* busy) : handle_(handle), busy_(busy) {}

 private:
  friend class Turn;
  Status begin() {
    const std::thread::id self = std::this_thread::get_id();
    if (owner_.load(std::memory_order_relaxed) == self) {
      return Error{busy_,
                   std::string(handle_) +
                       ": expected no call with it before the one that runs has returned, found "
                       "one of a function that this calls, in the same thread"};
    }
    mutex_.lock();
    owner_.store(self, std::memory_order_relaxed);
    return {};
  }
  void end() {
    owner_.store({}, std::memory_order_relaxed);
    mutex_.unlock();
  }

  const char* handle_;
  const char* busy_;
  std::mutex mutex_;
  /// A thread compares it with itself, and no other one stores that.
  std::atomic<std::thread::id> owner_;
};

/// A turn, until it is destroyed. It keeps what it is a turn on, whoever destroys its handle
/// meanwhile.
class Turn {
 public:
  /// Waits for turns of other threads. Code: that of Turns.
  static Result<Turn> take(std::shared_ptr<Turns> turns) {
    SUBBYTE_CHECK(turns->begin());
    return Turn(std::move(turns));
  }

  Turn(Turn&& other) = default;
  Turn& operator=(Turn&& other) = delete;
  ~Turn() {
    if (turns_ != nullptr) turns_->end();
  }

 private:
  explicit Turn(std::shared_ptr<Turns> turns) : turns_(std::move(turns)) {}

  std::shared_ptr<Turns> turns_;
};

}  // namespace subbyte::c
