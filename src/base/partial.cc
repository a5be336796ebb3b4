#include "base/partial.h"

#include <fcntl.h>
#include <sys/file.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <ctime>
#include <mutex>

#include "base/file_error.h"
#include "base/folder.h"
#include "base/partial_name.h"

namespace subbyte {

namespace fs = std::filesystem;

// The table is fixed, because a signal handler may neither allocate nor lock. The state of a slot
// says who may touch the output:
//
//   free -> filling -> file ----------------------------------> free
//                   -> directory -> committing ---------------> free
//                   (file, directory) -> removing -> removed -> free
//
// An output lives as long as its slot is not free, and no slot is filled once
// remove_partial_outputs() has begun.
struct PartialSlot {
  enum State : int { kFree, kFilling, kFile, kDirectory, kCommitting, kRemoving, kRemoved };

  std::atomic<int> state{kFree};
  std::atomic<pid_t> owner{0};  // a child after fork() must not remove what its parent writes
  std::atomic<const Partial*> output{nullptr};
  std::atomic<int> directory{-1};  // a descriptor, once it is there

  bool begins(State from, State to) {
    int expected = from;
    return state.compare_exchange_strong(expected, to);
  }
};

namespace {

using State = PartialSlot::State;

static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

constinit std::array<PartialSlot, 64> slots;
constinit std::atomic<bool> stopping{false};
constinit std::mutex freeing;  // not for handlers: keeps outputs alive while they are looked at

Error table_error(const Place& place) {
  return {"file.io",
          place.given.native() + (stopping ? ": not created, the process is being stopped"
                                           : ": too many outputs at a time or too long a name")};
}

/// Returns when done(), or after a second.
template <typename F>
void wait_for(F&& done) {
  const timespec millisecond{0, 1'000'000};
  for (int waited = 0; waited < 1000 && !done(); ++waited) ::nanosleep(&millisecond, nullptr);
}

bool is_partial(const char* name) {
  return std::string_view(name).find(".partial-") != std::string_view::npos;
}

/// Whether it is what mkdir() has just made: in a folder where others may rename, another directory
/// of this user may have its name by now.
bool is_fresh(int directory) {
  struct stat status {};
  if (::fstat(directory, &status) != 0) return false;
  bool is_empty = true;
  const int failure = for_each_name(directory, [&](const char*) { is_empty = false; });
  return failure == 0 && is_empty && status.st_uid == ::geteuid() && (status.st_mode & 077) == 0;
}

std::size_t count_finished(int directory, std::string_view kept) {
  std::size_t count = 0;
  if (directory < 0 || kept.empty()) return 0;
  for_each_name(directory, [&](const char* name) { count += is_finished(directory, name, kept); });
  return count;
}

}  // namespace

Error link_error(const fs::path& path) {
  std::error_code ignored;
  return {"file.not_regular",
          path.native() + ": expected a regular file or nothing, found a link to " +
              fs::read_symlink(path, ignored).native() +
              ", which is neither replaced nor followed (name the file itself)"};
}

/// One that this process is making is known by its path.
Descriptor folder_at(const fs::path& path) {
  const std::scoped_lock guard(freeing);
  for (const PartialSlot& slot : slots) {
    const bool is_here = slot.state > State::kFilling && slot.owner == ::getpid() &&
                         slot.directory >= 0 && slot.output.load()->path_ == path;
    if (is_here) return Descriptor(::fcntl(slot.directory, F_DUPFD_CLOEXEC, 3));
  }
  return open_folder(path);
}

Result<Place> Place::of(const fs::path& given) {
  std::error_code failure;
  fs::path path = fs::absolute(given, failure);
  if (!path.has_filename()) path = path.parent_path();
  if (failure || given.empty() || given.native().find('\0') != std::string::npos) {
    const std::string shown = given.empty() ? "\"\"" : given.c_str();
    return Error{"file.io", shown + ": not a name for an output"};
  }
  const bool is_root = !path.has_filename();
  if (is_root) return Error{"file.exists", given.native() + ": exists already"};
  Descriptor folder = folder_at(path.parent_path());
  if (!folder) return file_error(errno, given, "create");
  std::string name = path.filename();
  return Place{std::move(path), given, std::move(name), std::move(folder)};
}

Result<std::optional<struct stat>> Place::check(bool overwrite) const {
  struct stat status {};
  if (::fstatat(folder.number(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return std::optional<struct stat>();
    return file_error(errno, given, "create");
  }
  if (!overwrite) return Error{"file.exists", given.native() + ": exists already"};
  if (S_ISLNK(status.st_mode)) return link_error(given);
  // A rename would replace /dev/null as readily as a file.
  if (!S_ISREG(status.st_mode)) {
    return Error{"file.not_regular", given.native() + ": is not a regular file, not overwritten"};
  }
  return std::optional(status);
}

Lock lock(int folder, const std::string& name, int file) {
  const int failure = ::flock(file, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  // Who held it may have given it its final name before the lock came free.
  if (failure == EWOULDBLOCK || !names(folder, name.c_str(), file)) return Lock::kOfAnother;
  return failure == 0 ? Lock::kTaken : Lock::kNone;
}

bool is_finished(int directory, const char* name, std::string_view kept) {
  struct stat status {};
  return std::string_view(name).ends_with(kept) && !is_partial(name) &&
         ::fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(status.st_mode) &&
         status.st_uid == ::geteuid() && status.st_nlink == 1;
}

Result<std::unique_ptr<Partial>> Partial::make(Place place, Kind kind, mode_t mode,
                                               std::string_view kept) {
  constexpr int kAttempts = 10;
  std::unique_ptr<Partial> partial(new Partial(std::move(place), kind, kept));
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    SUBBYTE_TRY(const bool made, partial->attempt(mode));
    if (made && stopping) return table_error(partial->place_);
    if (made) return partial;
  }
  return file_error(EEXIST, partial->place_.given, "create a temporary name");
}

/// False when the name was taken, or another process took it for a leftover before it was locked.
Result<bool> Partial::attempt(mode_t mode) {
  name_ = partial_name(place_.name);
  path_ = place_.path.parent_path() / name_;
  // Before it is made, so that no moment is uncovered.
  if (!take_slot()) return table_error(place_);
  const int failure = create(mode);
  if (failure != 0) {
    forget();
    if (failure == EEXIST || failure == EINTR) return false;
    return file_error(failure, place_.given, "create");
  }
  const Lock found = lock(place_.folder.number(), name_, descriptor());
  is_locked_ = found == Lock::kTaken;
  if (found == Lock::kOfAnother) discard();
  return found != Lock::kOfAnother;
}

/// False when the table is full or the process is being stopped.
bool Partial::take_slot() {
  for (PartialSlot& slot : slots) {
    if (!slot.begins(State::kFree, State::kFilling)) continue;
    slot.directory = -1;
    slot.output = this;
    slot.owner = ::getpid();
    const State state = is_directory_ ? State::kDirectory : State::kFile;
    slot.state = stopping ? State::kFree : state;
    if (slot.state != State::kFree) slot_ = &slot;
    return slot_ != nullptr;
  }
  return false;
}

/// 0 or errno.
int Partial::create(mode_t mode) {
  const int folder = place_.folder.number();
  if (!is_directory_) {
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
    own_ = Descriptor(::openat(folder, name_.c_str(), flags, mode));
    return own_ ? 0 : errno;
  }
  if (::mkdirat(folder, name_.c_str(), mode) != 0) return errno;
  own_ = open_folder_in(folder, name_.c_str());
  if (own_ && is_fresh(descriptor())) {
    slot_->directory = descriptor();
    return 0;
  }
  // What is not known to be this one's is removed only where nothing is in it.
  unlink_surely(folder, name_.c_str(), AT_REMOVEDIR);
  return EEXIST;
}

/// It is at its final name, or gone, or stays as it is.
void Partial::forget() {
  if (slot_ != nullptr) {
    const std::scoped_lock guard(freeing);
    wait_for([this] {
      int state = slot_->state;
      return state != State::kRemoving && slot_->state.compare_exchange_strong(state, State::kFree);
    });
    slot_->state = State::kFree;
    slot_ = nullptr;
  }
  own_ = {};
}

std::size_t Partial::num_finished() const {
  return is_locked_ ? count_finished(descriptor(), kept_) : 0;
}

int Partial::rename(bool overwrite) {
  if (is_directory_ && !slot_->begins(State::kDirectory, State::kCommitting)) return EINTR;
  const int folder = place_.folder.number();
  const char* const from = name_.c_str();
  const char* const to = place_.name.c_str();
  if (overwrite) return ::renameat(folder, from, folder, to) == 0 ? 0 : errno;
  const int failure = rename_exclusive(folder, from, folder, to, is_directory_);
  if (failure != 0) slot_->begins(State::kCommitting, State::kDirectory);
  return failure;
}

void Partial::remove(int directory) const {
  const int folder = place_.folder.number();
  if (is_directory_) {
    remove_directory(folder, name_.c_str(), directory);
  } else {
    unlink_surely(folder, name_.c_str(), 0);
  }
}

void Partial::discard() {
  if (own_) remove(descriptor());
  forget();
}

Partial::~Partial() {
  if (num_finished() == 0) discard();
  forget();
}

/// False when it stays, since files in it are what another run goes on with.
bool Partial::remove_at_signal(int directory) const {
  if (count_finished(directory, kept_) == 0) {
    remove(directory);
    return true;
  }
  for_each_name(directory, [&](const char* name) {
    if (is_partial(name)) ::unlinkat(directory, name, 0);
  });
  return false;
}

const char* remove_partial_outputs() noexcept {
  const int saved_errno = errno;
  const char* stays = nullptr;
  stopping = true;
  // Files first: they may lie in the directories.
  for (const State kind : {State::kFile, State::kDirectory}) {
    for (PartialSlot& slot : slots) {
      if (slot.owner != ::getpid()) continue;
      if (kind == State::kDirectory) wait_for([&] { return slot.state != State::kCommitting; });
      if (!slot.begins(kind, State::kRemoving)) continue;
      const Partial* const output = slot.output;
      if (output->remove_at_signal(slot.directory)) {
        slot.state = State::kRemoved;
      } else {
        stays = output->path_.c_str();  // as long as it is being removed
      }
    }
  }
  errno = saved_errno;
  return stays;
}

}  // namespace subbyte
