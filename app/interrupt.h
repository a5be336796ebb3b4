#pragma once
// What Ctrl-C and other signals do: end the program with a line that says what is left, or stop one
// thing and not the program.

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

/// Says whether a bar stands in the line of the cursor, which is cleared where a signal ends the
/// program.
void set_bar_shown(bool shown) noexcept;

/// Says that something stays whatever happens from now on: on standard output, or on the disk.
void set_written() noexcept;

/// Makes the signals that end a program end this one cleanly: what is not finished is removed, the
/// bar is cleared, and a line says what is true. The exit code is 128 + signal.
void handle_signals();

}  // namespace subbyte::app
