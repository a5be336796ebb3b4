#pragma once
// Ctrl-C that stops one thing and not the program, and what is said where a signal ends it.

#include <cstdint>

namespace subbyte::app {

/// While it lives, the first SIGINT after begin() only sets a flag; the second ends the program as
/// ever. One at a time.
class Interruptible {
 public:
  Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;
  ~Interruptible();

  /// Begins work that may be stopped.
  void begin();
  bool interrupted() const;

 private:
  void (*usual_)(int);
};

/// While it lives, a signal that ends the program says how far a job is. One at a time.
class StopNote {
 public:
  /// `goes_on`: whether the same command does so where this one was stopped.
  explicit StopNote(bool goes_on);
  StopNote(const StopNote&) = delete;
  StopNote& operator=(const StopNote&) = delete;
  ~StopNote();

  void set(int64_t answered, int64_t lines);
};

/// Writes the note to standard error, if there is one. For signal handlers.
void write_stop_note() noexcept;

}  // namespace subbyte::app
