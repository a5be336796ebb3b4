#include "turns.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "watch.h"

namespace subbyte::python {
namespace {

constexpr std::chrono::milliseconds kBetweenSignals{50};

}  // namespace

Result<Turns::Turn> Turns::take(std::string_view what) {
  const std::thread::id self = std::this_thread::get_id();
  std::unique_lock lock(mutex_);
  if (owner_ == self) {
    return Error{"session.busy",
                 fmt::format("{}: expected a call from outside, found one within another call of "
                             "this thread, from a signal handler or a progress function: let that "
                             "end first, or call from another thread",
                             what)};
  }
  // A signal handler of a thread that waits comes before that thread.
  const auto place = queue_.insert(std::ranges::find(queue_, self), self);
  while (place != queue_.begin()) {
    if (changed_.wait_for(lock, kBetweenSignals) == std::cv_status::no_timeout) continue;
    lock.unlock();
    bool is_ending = false;
    try {
      run_signal_handlers();
      is_ending = is_interpreter_ending();
    } catch (...) {
      lock.lock();
      leave(place);
      throw;
    }
    lock.lock();
    if (!is_ending) continue;
    leave(place);
    return Error{"session.ending",
                 fmt::format("{}: expected a call before the interpreter ends, found another "
                             "thread at work, which never comes back: end that first",
                             what)};
  }
  owner_ = self;
  return Turn(*this);
}

void Turns::leave(std::list<std::thread::id>::iterator place) {
  queue_.erase(place);
  changed_.notify_all();
}

std::optional<Turns::Turn> Turns::take_if_free() {
  const std::lock_guard lock(mutex_);
  if (!queue_.empty()) return std::nullopt;
  owner_ = std::this_thread::get_id();
  queue_.push_back(owner_);
  return Turn(*this);
}

void Turns::end() {
  const std::lock_guard lock(mutex_);
  owner_ = {};
  queue_.pop_front();
  changed_.notify_all();
}

}  // namespace subbyte::python
