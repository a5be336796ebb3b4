#include "base/partial_outputs.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "base/output_directory.h"

namespace subbyte {
namespace partial_outputs {
namespace {

enum State : int { kFree, kFilling, kFile, kDirectory, kCommitting, kRemoving };

struct Slot {
  std::atomic<int> state{kFree};
  std::atomic<pid_t> owner{0};     // a child after fork() must not remove what its parent writes
  std::atomic<int> folder{-1};     // that it lies in, a descriptor as all
  std::atomic<int> directory{-1};  // itself, once it is there
  std::array<char, 4096> path{};
  std::atomic<std::size_t> name{0};  // where that begins in the path
  std::array<char, 32> kept{};
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

/// Calls visit(name) for what is in an open directory. With getdents, because opendir allocates.
template <typename F>
void for_each_name(int directory, F&& visit) {
  alignas(dirent64) char buffer[4096];
  ::lseek(directory, 0, SEEK_SET);
  for (;;) {
    const ssize_t size = ::getdents64(directory, buffer, sizeof buffer);
    if (size <= 0) return;
    for (ssize_t at = 0; at < size;) {
      const auto* entry = reinterpret_cast<const dirent64*>(buffer + at);
      visit(entry->d_name);
      at += entry->d_reclen;
    }
  }
}

bool is_partial(const char* name) {
  return std::strstr(name, ".partial-") != nullptr;
}

/// Unlinks regular files: all, or those that were not finished.
void unlink_files(int directory, bool only_partial) {
  for_each_name(directory, [&](const char* name) {
    // Fails on . and .., as it should.
    if (!only_partial || is_partial(name)) ::unlinkat(directory, name, 0);
  });
}

bool has_finished(int directory, std::string_view kept) {
  if (kept.empty()) return false;
  bool found = false;
  for_each_name(directory, [&](const char* name) {
    found = found || (std::string_view(name).ends_with(kept) && !is_partial(name));
  });
  return found;
}

/// False when it stays, since files in it that end in `kept` are finished.
bool remove_directory(const Slot& slot) {
  const int directory = slot.directory.load();
  const std::string_view kept = slot.kept.data();
  if (directory >= 0 && has_finished(directory, kept)) {
    unlink_files(directory, true);
    return false;
  }
  // Another thread may still be putting a file there; after `stop` it can do so only once.
  const char* name = slot.path.data() + slot.name.load();
  for (int attempt = 0; attempt < 100; ++attempt) {
    if (directory >= 0) unlink_files(directory, false);
    if (::unlinkat(slot.folder.load(), name, AT_REMOVEDIR) == 0 || errno == ENOENT) break;
  }
  return true;
}

/// Returns when no other thread is between begin_commit() and forget(), or after a second.
void await_commit(const Slot& slot) {
  const timespec millisecond{0, 1'000'000};
  for (int waited = 0; waited < 1000 && slot.state.load() == kCommitting; ++waited) {
    ::nanosleep(&millisecond, nullptr);
  }
}

}  // namespace

bool add(std::string_view path, int folder, Kind kind, std::string_view kept) {
  for (Slot& slot : slots) {
    if (path.size() >= slot.path.size() || kept.size() >= slot.kept.size()) return false;
    int expected = kFree;
    if (!slot.state.compare_exchange_strong(expected, kFilling)) continue;
    if (stop.load()) {
      slot.state.store(kFree);
      return false;
    }
    path.copy(slot.path.data(), path.size());
    slot.path[path.size()] = '\0';
    slot.name.store(path.rfind('/') + 1);  // 0 where there is none
    slot.folder.store(folder);
    slot.directory.store(-1);
    kept.copy(slot.kept.data(), kept.size());
    slot.kept[kept.size()] = '\0';
    slot.owner.store(::getpid());
    slot.state.store(kind == Kind::kFile ? kFile : kDirectory);
    return true;
  }
  return false;
}

void set_directory(std::string_view path, int directory) {
  if (Slot* slot = find(path); slot != nullptr) slot->directory.store(directory);
}

int directory_of(std::string_view path) {
  const Slot* slot = find(path);
  return slot == nullptr ? -1 : slot->directory.load();
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

const char* remove_partial_outputs() noexcept {
  using namespace partial_outputs;
  const int saved_errno = errno;
  const char* stays = nullptr;
  stop.store(true);
  for (Slot& slot : slots) {
    if (slot.state.load() == kFile && slot.owner.load() == ::getpid()) {
      ::unlinkat(slot.folder.load(), slot.path.data() + slot.name.load(), 0);
    }
  }
  for (Slot& slot : slots) {
    if (slot.owner.load() != ::getpid()) continue;
    await_commit(slot);
    int expected = kDirectory;
    if (slot.state.compare_exchange_strong(expected, kRemoving)) {
      if (!remove_directory(slot)) stays = slot.path.data();
    }
  }
  errno = saved_errno;
  return stays;
}

}  // namespace subbyte
