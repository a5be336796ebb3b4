#pragma once
// Memory that ends where it ends: the page after the last byte faults, so a kernel that reads one
// byte too many is found by the first test that runs it.

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <span>

namespace subbyte::testing {

class GuardedBytes {
 public:
  explicit GuardedBytes(std::size_t size) : size_(size) {
    usable_ = (size + kPage - 1) / kPage * kPage;
    void* mapped =
        mmap(nullptr, usable_ + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) std::abort();
    base_ = static_cast<std::byte*>(mapped);
    if (mprotect(base_ + usable_, kPage, PROT_NONE) != 0) std::abort();
  }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;
  ~GuardedBytes() { munmap(base_, usable_ + kPage); }

  std::byte* data() { return base_ + usable_ - size_; }
  std::size_t size() const { return size_; }
  std::span<std::byte> span() { return {data(), size_}; }

 private:
  static constexpr std::size_t kPage = 4096;
  std::size_t size_;
  std::size_t usable_ = 0;
  std::byte* base_ = nullptr;
};

}  // namespace subbyte::testing
