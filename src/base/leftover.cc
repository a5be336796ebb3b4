#include "base/leftover.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <utility>

#include "base/file_error.h"
#include "base/output_parts.h"
#include "base/partial_name.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using State = Leftover::State;

constexpr off_t kMaxRecordBytes = 16 << 20;
/// Of a record that there is, and that no command of this program wrote.
constexpr const char* kUnreadable = "?";

std::string megabytes(uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MB", static_cast<double>(bytes) / 1e6);
  return text;
}

/// The names in an open directory but "." and "..". Another descriptor, so that its place is its
/// own. Nullopt when it cannot be read.
std::optional<std::vector<std::string>> names_in(int directory) {
  const int copy = ::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* stream = copy < 0 ? nullptr : ::fdopendir(copy);
  if (stream == nullptr) {
    if (copy >= 0) ::close(copy);
    return std::nullopt;
  }
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(stream)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  ::closedir(stream);
  return names;
}

/// Bytes of the files in an open directory; nullopt when something else is in it, which no output
/// has.
std::optional<uint64_t> bytes_in(int directory) {
  const auto names = names_in(directory);
  if (!names) return std::nullopt;
  uint64_t bytes = 0;
  for (const std::string& name : *names) {
    struct stat status {};
    if (::fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (!S_ISREG(status.st_mode)) return std::nullopt;
    bytes += static_cast<uint64_t>(status.st_size);
  }
  return bytes;
}

/// What may be made of what is at `status`, unless a process holds it.
State state_of(const struct stat& status) {
  if (!S_ISDIR(status.st_mode) && !S_ISREG(status.st_mode)) return State::kStrange;
  return status.st_uid == ::geteuid() ? State::kAbandoned : State::kForeign;
}

leftover::Claim claim(const Folder& folder, const std::string& name, const fs::path& path) {
  leftover::Claim claim;
  claim.leftover.path = path;
  struct stat status {};
  const int found = ::fstatat(folder.descriptor(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW);
  if (found == 0) claim.leftover.state = state_of(status);
  if (found == 0 && claim.leftover.state != State::kAbandoned) return claim;
  claim.leftover.state = State::kHeld;  // also what has just got its final name
  claim.lock = leftover::Lock::take(folder, name);
  // Of what is locked, whatever had the name before.
  if (!claim.lock || ::fstat(claim.lock.file(), &status) != 0) return claim;
  claim.leftover.state = state_of(status);
  std::optional<uint64_t> bytes = static_cast<uint64_t>(status.st_size);
  if (S_ISDIR(status.st_mode)) bytes = bytes_in(claim.lock.file());
  if (!bytes && claim.leftover.state == State::kAbandoned) claim.leftover.state = State::kStrange;
  claim.leftover.bytes = bytes.value_or(0);
  return claim;
}

/// The names in `folder` that are those of leftovers, of `target` if that is not empty.
std::vector<std::string> leftovers_in(const Folder& folder, std::string_view target) {
  std::vector<std::string> names =
      names_in(folder.descriptor()).value_or(std::vector<std::string>());
  std::erase_if(names, [&](const std::string& name) {
    const auto found = target_of_partial(name);
    return !found || (!target.empty() && *found != target);
  });
  std::ranges::sort(names);
  return names;
}

}  // namespace

std::string leftover_line(const Leftover& leftover) {
  std::string text = leftover.path.native();
  switch (leftover.state) {
    case State::kAbandoned:
      return text + ": " + megabytes(leftover.bytes) + " left by a process that did not finish";
    case State::kHeld:
      return text + ": left alone, a process is writing it";
    case State::kForeign:
      return text + ": left alone, another user made it";
    case State::kStrange:
      break;
  }
  return text + ": left alone, it is not what this program makes";
}

Result<std::vector<Leftover>> find_leftovers(const fs::path& directory,
                                             std::string_view target_name) {
  SUBBYTE_TRY(const Folder folder, Folder::open(directory));
  std::vector<Leftover> found;
  for (const leftover::Claim& claim : leftover::claim_all(folder, directory, target_name)) {
    found.push_back(claim.leftover);
  }
  return found;
}

Status remove_leftover(const fs::path& path) {
  SUBBYTE_TRY(const Folder folder, Folder::open(path.parent_path()));
  const std::string name = path.filename().native();
  const leftover::Claim claimed = claim(folder, name, path);
  if (claimed.leftover.state != State::kAbandoned) {
    return Error{"file.in_use", leftover_line(claimed.leftover)};
  }
  if (target_of_partial(name)) return leftover::remove(folder, claimed);
  return Error{"file.in_use", path.native() + ": left alone, it is not what this program makes"};
}

void remove_leftovers_of(const fs::path& target, const Notice& notice) {
  const auto folder = Folder::open(target.parent_path());
  if (folder.ok()) remove_leftovers_of(*folder, target, notice);  // else the output will say why
}

void remove_leftovers_of(const Folder& folder, const fs::path& target, const Notice& notice) {
  const std::string name = target.filename().native();
  for (const leftover::Claim& claimed : leftover::claim_all(folder, target.parent_path(), name)) {
    std::string line = leftover_line(claimed.leftover);
    if (claimed.leftover.state == State::kAbandoned) {
      // The record of a conversion: that command may still go on with it.
      const bool may_go_on = !leftover::read_record(claimed.lock.file()).empty();
      const Status removed = may_go_on ? Status() : leftover::remove(folder, claimed);
      line += may_go_on      ? ", kept for the command that made it (or for `subbyte clean`)"
              : removed.ok() ? ", removed"
                             : ", not removed: " + removed.error().message;
    }
    if (notice) notice(line);
  }
}

namespace leftover {

Lock Lock::take(const Folder& folder, const std::string& name) {
  Lock lock;
  const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  lock.file_ = ::openat(folder.descriptor(), name.c_str(), flags);
  if (lock.file_ < 0) {
    lock.contended_ = errno == ENOENT;
    return lock;
  }
  const int failure = ::flock(lock.file_, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  // Who held it may have given it its final name before the lock came free.
  const bool is_same = folder.names(name, lock.file_);
  if (failure == 0 && is_same) return lock;
  Lock none;
  none.contended_ = failure == EWOULDBLOCK || !is_same;
  return none;
}

Lock::Lock(Lock&& other) noexcept
    : file_(std::exchange(other.file_, -1)), contended_(other.contended_) {}

Lock& Lock::operator=(Lock&& other) noexcept {
  std::swap(file_, other.file_);
  contended_ = other.contended_;
  return *this;
}

Lock::~Lock() {
  if (file_ >= 0) ::close(file_);
}

std::vector<Claim> claim_all(const Folder& folder, const fs::path& directory,
                             std::string_view target) {
  std::vector<Claim> claims;
  for (const std::string& name : leftovers_in(folder, target)) {
    claims.push_back(claim(folder, name, directory / name));
  }
  return claims;
}

bool is_private(const Claim& claim) {
  struct stat status {};
  return claim.lock && ::fstat(claim.lock.file(), &status) == 0 && status.st_uid == ::geteuid() &&
         (status.st_mode & 077) == 0;
}

std::string read_record(int directory) {
  const int file = ::openat(directory, kRecordName, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return errno == ENOENT || errno == ENOTDIR ? "" : kUnreadable;
  struct stat status {};
  std::string text;
  const bool is_known = ::fstat(file, &status) == 0;
  if (is_known && S_ISREG(status.st_mode) && status.st_size <= kMaxRecordBytes) {
    text.resize(static_cast<std::size_t>(status.st_size));
    std::size_t size = 0;
    ssize_t count = 1;
    while (size < text.size() && count > 0) {
      count = ::read(file, text.data() + size, text.size() - size);
      if (count < 0 && errno == EINTR)
        count = 1;
      else if (count > 0)
        size += static_cast<std::size_t>(count);
    }
    text.resize(size);
    if (count < 0) text = kUnreadable;
  }
  ::close(file);
  return is_known ? text : kUnreadable;
}

std::vector<std::string> finished_files(int directory, std::string_view kept) {
  std::vector<std::string> names = names_in(directory).value_or(std::vector<std::string>());
  std::erase_if(names, [&](const std::string& name) {
    struct stat status {};
    return !name.ends_with(kept) || target_of_partial(name) ||
           ::fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 ||
           !S_ISREG(status.st_mode) || status.st_uid != ::geteuid() || status.st_nlink != 1;
  });
  std::ranges::sort(names);
  return names;
}

bool is_empty(int directory) {
  const auto names = names_in(directory);
  return names && names->empty();
}

int unlink_all(int directory, std::string& failed) {
  const auto names = names_in(directory);
  if (!names) return EIO;
  int failure = 0;
  for (const std::string& name : *names) {
    const int of_this = output_parts::unlink_surely(directory, name.c_str(), 0);
    if (of_this == 0 || failure != 0) continue;
    failed = name;
    failure = of_this;
  }
  return failure;
}

Status remove(const Folder& folder, const Claim& claim) {
  const fs::path& path = claim.leftover.path;
  const std::string name = path.filename().native();
  struct stat status {};
  if (::fstat(claim.lock.file(), &status) != 0) return file_error(errno, path, "look at");
  const bool is_directory = S_ISDIR(status.st_mode);
  std::string failed;
  if (const int failure = is_directory ? unlink_all(claim.lock.file(), failed) : 0; failure != 0) {
    return file_error(failure, path / failed, "remove");
  }
  if (!folder.names(name, claim.lock.file())) return file_error(ENOENT, path, "remove");
  const int flags = is_directory ? AT_REMOVEDIR : 0;
  const int failure = output_parts::unlink_surely(folder.descriptor(), name.c_str(), flags);
  return failure == 0 ? Status() : file_error(failure, path, "remove");
}

}  // namespace leftover
}  // namespace subbyte
