#pragma once
// System calls of an output that fail, or kill the process, when a test says so: the definitions
// here take the place of the C library's. For one file of a program only.

#include <dirent.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <functional>
#include <string>

namespace subbyte {

/// What the next calls meet: the `countdown`-th one from now fails with `error_number`, or ends the
/// process without a word.
struct Fault {
  int countdown = 0;  // 0: none
  int error_number = 0;
  bool short_writes = false;
  std::string log = {};  // the calls in order, by their first letters
  int signal_at_rename = 0;
  bool kills = false;
  std::function<void()> after_rename = {};  // what somebody else does then
  int failing_unlinks = 0;                  // so many, none of which is logged
  int failing_listings = 0;                 // the same of calls that list a directory
};

inline Fault* fault = nullptr;

inline bool fails(char letter) {
  if (fault == nullptr) return false;
  fault->log.push_back(letter);
  if (fault->countdown == 0 || --fault->countdown != 0) return false;
  if (fault->kills) ::raise(SIGKILL);
  errno = fault->error_number;
  return true;
}

inline bool is_one_of(int Fault::*calls) {
  if (fault == nullptr || fault->*calls == 0) return false;
  --(fault->*calls);
  errno = EIO;
  return true;
}

}  // namespace subbyte

extern "C" {

int unlinkat(int directory, const char* name, int flags) noexcept {
  if (subbyte::is_one_of(&subbyte::Fault::failing_unlinks)) return -1;
  return static_cast<int>(::syscall(SYS_unlinkat, directory, name, flags));
}

ssize_t getdents64(int directory, void* buffer, size_t size) noexcept {
  if (subbyte::is_one_of(&subbyte::Fault::failing_listings)) return -1;
  return ::syscall(SYS_getdents64, directory, buffer, size);
}

ssize_t write(int file, const void* data, size_t size) {
  using namespace subbyte;
  if (fails('w')) return -1;
  if (fault != nullptr && fault->short_writes && size > 1) size = size / 2;
  return ::syscall(SYS_write, file, data, size);
}

ssize_t pwrite(int file, const void* data, size_t size, off_t offset) {
  using namespace subbyte;
  if (fails('p')) return -1;
  if (fault != nullptr && fault->short_writes && size > 1) size = size / 2;
  return ::syscall(SYS_pwrite64, file, data, size, offset);
}

int fsync(int file) {
  return subbyte::fails('s') ? -1 : static_cast<int>(::syscall(SYS_fsync, file));
}

int renameat(int from_dir, const char* from, int to_dir, const char* to) noexcept {
  if (subbyte::fails('r')) return -1;
  return static_cast<int>(::syscall(SYS_renameat2, from_dir, from, to_dir, to, 0));
}

int renameat2(int from_dir, const char* from, int to_dir, const char* to, unsigned flags) noexcept {
  using namespace subbyte;
  if (fails('n')) return -1;
  if (fault != nullptr && fault->signal_at_rename != 0) ::raise(fault->signal_at_rename);
  const auto result = static_cast<int>(::syscall(SYS_renameat2, from_dir, from, to_dir, to, flags));
  if (fault != nullptr && fault->after_rename) fault->after_rename();
  return result;
}

int linkat(int from_dir, const char* from, int to_dir, const char* to, int flags) noexcept {
  if (subbyte::fails('l')) return -1;
  return static_cast<int>(::syscall(SYS_linkat, from_dir, from, to_dir, to, flags));
}
}
