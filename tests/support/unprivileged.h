#pragma once
// File permissions mean nothing to root, whom continuous integration often is.

#include <unistd.h>

namespace subbyte {

/// While it lives, a process of root acts as nobody.
class Unprivileged {
 public:
  Unprivileged() : was_root_(::geteuid() == 0) {
    if (was_root_) active_ = ::seteuid(65534) == 0;
  }
  ~Unprivileged() {
    if (was_root_ && active_) static_cast<void>(!::seteuid(0));
  }
  Unprivileged(const Unprivileged&) = delete;
  Unprivileged& operator=(const Unprivileged&) = delete;

  /// False when root could not step down: permissions would not be checked.
  bool active() const { return active_; }

 private:
  bool was_root_;
  bool active_ = true;
};

}  // namespace subbyte
