#include "base/partial_outputs.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "base/output_file.h"

namespace subbyte {
namespace partial_outputs {
namespace {

enum State : int { kFree, kFilling, kFile, kDirectory, kCommitting, kRemoving };

struct Slot {
  std::atomic<int> state{kFree};
  std::atomic<pid_t> owner{0};  // a child after fork() must not remove what its parent writes
  std::array<char, 4096> path{};
};

static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

constinit std::array<Slot, 64> slots;
constinit std::atomic<bool> stop{false};

Slot* find(std::string_view path) {
  for (Slot& slot : slots) {
    const int state = slot.state.load();
    if (state > kFilling && slot.owner.load() == ::getpid() && path == slot.path.data()) {
      return &slot;
    }
  }
  return nullptr;
}

/// Unlinks the regular files in an open directory. With getdents, because opendir allocates.
void empty_directory(int directory) {
  alignas(dirent64) char buffer[4096];
  ::lseek(directory, 0, SEEK_SET);
  for (;;) {
    const ssize_t size = ::getdents64(directory, buffer, sizeof buffer);
    if (size <= 0) return;
    for (ssize_t at = 0; at < size;) {
      const auto* entry = reinterpret_cast<const dirent64*>(buffer + at);
      ::unlinkat(directory, entry->d_name, 0);  // fails on . and .., as it should
      at += entry->d_reclen;
    }
  }
}

void remove_directory(const char* path) {
  const int directory = ::open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (directory < 0) return;
  // Another thread may still be putting a file there; after `stop` it can do so only once.
  for (int attempt = 0; attempt < 100; ++attempt) {
    empty_directory(directory);
    if (::rmdir(path) == 0 || errno == ENOENT) break;
  }
  ::close(directory);
}

/// Returns when no other thread is between begin_commit() and forget(), or after a second.
void await_commit(const Slot& slot) {
  const timespec millisecond{0, 1'000'000};
  for (int waited = 0; waited < 1000 && slot.state.load() == kCommitting; ++waited) {
    ::nanosleep(&millisecond, nullptr);
  }
}

}  // namespace

bool add(std::string_view path, Kind kind) {
  for (Slot& slot : slots) {
    if (path.size() >= slot.path.size()) return false;
    int expected = kFree;
    if (!slot.state.compare_exchange_strong(expected, kFilling)) continue;
    if (stop.load()) {
      slot.state.store(kFree);
      return false;
    }
    std::memcpy(slot.path.data(), path.data(), path.size());
    slot.path[path.size()] = '\0';
    slot.owner.store(::getpid());
    slot.state.store(kind == Kind::kFile ? kFile : kDirectory);
    return true;
  }
  return false;
}

bool stopping() {
  return stop.load();
}

bool begin_commit(std::string_view path) {
  Slot* slot = find(path);
  int expected = kDirectory;
  return slot != nullptr && slot->state.compare_exchange_strong(expected, kCommitting);
}

void forget(std::string_view path) {
  if (Slot* slot = find(path); slot != nullptr) slot->state.store(kFree);
}

}  // namespace partial_outputs

void remove_partial_outputs() noexcept {
  using namespace partial_outputs;
  const int saved_errno = errno;
  stop.store(true);
  for (Slot& slot : slots) {
    if (slot.state.load() == kFile && slot.owner.load() == ::getpid()) {
      ::unlink(slot.path.data());
    }
  }
  for (Slot& slot : slots) {
    if (slot.owner.load() != ::getpid()) continue;
    await_commit(slot);
    int expected = kDirectory;
    if (slot.state.compare_exchange_strong(expected, kRemoving)) {
      remove_directory(slot.path.data());
    }
  }
  errno = saved_errno;
}

}  // namespace subbyte
