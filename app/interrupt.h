#pragma once
// Ctrl-C that stops one thing and not the program.

namespace subbyte::app {

/// While it lives, the first SIGINT after begin() only sets a flag; the second ends the program as
/// ever. One at a time.
class Interruptible {
 public:
  Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;
  ~Interruptible();

  /// What may be stopped begins.
  void begin();
  bool interrupted() const;

 private:
  void (*usual_)(int);
};

}  // namespace subbyte::app
