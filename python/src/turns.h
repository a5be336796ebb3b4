#pragma once
// What one thread at a time may use: threads get their turns in the order in which they ask.

#include <condition_variable>
#include <list>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "base/status.h"

namespace subbyte::python {

class Turns {
 public:
  /// The turn of this thread, until it ends.
  class Turn {
   public:
    Turn(Turn&& other) noexcept : turns_(std::exchange(other.turns_, nullptr)) {}
    Turn& operator=(Turn&&) = delete;
    ~Turn() {
      if (turns_ != nullptr) turns_->end();
    }

   private:
    friend Turns;
    explicit Turn(Turns& turns) : turns_(&turns) {}

    Turns* turns_;
  };

  /// Waits for a turn, without the GIL; Python's signal handlers run meanwhile, and throw what they
  /// raise. Codes: session.busy where this thread has the turn already, as one of its signal
  /// handlers or progress functions calls: it would wait for itself; session.ending where it would
  /// wait for a thread that the interpreter has outrun. `what` is used, for the message.
  Result<Turn> take(std::string_view what);

  /// The turn if nobody has it or waits for it.
  std::optional<Turn> take_if_free();

 private:
  void end();
  void leave(std::list<std::thread::id>::iterator place);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<std::thread::id> queue_;  // of those who want it; the first has it once it is awake
  std::thread::id owner_;
};

}  // namespace subbyte::python
