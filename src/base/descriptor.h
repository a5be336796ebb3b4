#pragma once
// A file descriptor with one owner, who closes it.

#include <unistd.h>

#include <utility>

namespace subbyte {

class Descriptor {
 public:
  Descriptor() = default;
  /// Owns what a call of the system gave; negative: nothing.
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }

  explicit operator bool() const { return number_ >= 0; }
  int number() const { return number_; }
  int release() { return std::exchange(number_, -1); }

 private:
  int number_ = -1;
};

}  // namespace subbyte
