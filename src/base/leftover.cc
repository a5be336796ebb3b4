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

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using State = Leftover::State;

constexpr std::string_view kPartial = ".partial-";
constexpr off_t kMaxRecordBytes = 16 << 20;

/// The name of the target of `<target>.partial-<number>-<number>`, nullopt for any other name.
std::optional<std::string_view> target_of(std::string_view name) {
  const auto at = name.rfind(kPartial);
  if (at == std::string_view::npos || at == 0) return std::nullopt;
  std::string_view rest = name.substr(at + kPartial.size());
  const auto dash = rest.find('-');
  const auto is_number = [](std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  };
  if (dash == std::string_view::npos || !is_number(rest.substr(0, dash)) ||
      !is_number(rest.substr(dash + 1))) {
    return std::nullopt;
  }
  return name.substr(0, at);
}

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

leftover::Claim claim(const fs::path& path) {
  leftover::Claim claim;
  claim.leftover.path = path;
  struct stat status {};
  const bool is_found = ::lstat(path.c_str(), &status) == 0;
  if (is_found && !S_ISDIR(status.st_mode) && !S_ISREG(status.st_mode)) return claim;
  claim.leftover.state = State::kForeign;
  if (is_found && status.st_uid != ::geteuid()) return claim;
  claim.leftover.state = State::kHeld;  // also what has just got its final name
  claim.lock = leftover::Lock::take(path);
  if (!claim.lock) return claim;
  std::optional<uint64_t> bytes = static_cast<uint64_t>(status.st_size);
  if (S_ISDIR(status.st_mode)) bytes = bytes_in(claim.lock.file());
  claim.leftover.state = bytes ? State::kAbandoned : State::kStrange;
  claim.leftover.bytes = bytes.value_or(0);
  return claim;
}

/// Paths in `directory` that are named like leftovers, of `target_name` if that is not empty.
Result<std::vector<fs::path>> paths_in(const fs::path& directory, std::string_view target_name) {
  std::vector<fs::path> paths;
  std::error_code failure;
  for (fs::directory_iterator entry(directory, failure), end; !failure && entry != end;
       entry.increment(failure)) {
    const std::string name = entry->path().filename().native();
    const auto target = target_of(name);
    if (target && (target_name.empty() || *target == target_name)) paths.push_back(entry->path());
  }
  if (failure) return file_error(failure.value(), directory, "read the directory");
  std::ranges::sort(paths);
  return paths;
}

}  // namespace

std::string describe(const Leftover& leftover) {
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
  SUBBYTE_TRY(const auto paths, paths_in(directory, target_name));
  std::vector<Leftover> found;
  for (const fs::path& path : paths) found.push_back(claim(path).leftover);
  return found;
}

Status remove_leftover(const fs::path& path) {
  const leftover::Claim claimed = claim(path);
  if (claimed.leftover.state == State::kAbandoned) return leftover::remove(claimed);
  return Error{"file.in_use", describe(claimed.leftover)};
}

void remove_leftovers_of(const fs::path& target, const Notice& notice) {
  for (const leftover::Claim& claimed : leftover::claim_all(target)) {
    std::string line = describe(claimed.leftover);
    if (claimed.leftover.state == State::kAbandoned) {
      // The record of a conversion: that command may still go on with it.
      const bool may_go_on = !leftover::read_record(claimed.lock.file()).empty();
      const Status removed = may_go_on ? Status() : leftover::remove(claimed);
      line += may_go_on      ? ", kept for the command that made it (or for `subbyte clean`)"
              : removed.ok() ? ", removed"
                             : ", not removed: " + removed.error().message;
    }
    if (notice) notice(line);
  }
}

namespace leftover {

Lock Lock::take(const fs::path& path) {
  Lock lock;
  lock.file_ = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (lock.file_ < 0) {
    lock.contended_ = errno == ENOENT;
    return lock;
  }
  const int failure = ::flock(lock.file_, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  // Who held it may have given it its final name before the lock came free.
  struct stat opened {};
  struct stat named {};
  const bool is_same = ::fstat(lock.file_, &opened) == 0 && ::lstat(path.c_str(), &named) == 0 &&
                       opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
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

std::vector<Claim> claim_all(const fs::path& target) {
  std::vector<Claim> claims;
  const auto paths = paths_in(target.parent_path(), target.filename().native());
  if (!paths.ok()) return claims;  // making the output will say why
  for (const fs::path& path : *paths) claims.push_back(claim(path));
  return claims;
}

bool is_private(const Claim& claim) {
  struct stat status {};
  return claim.lock && ::fstat(claim.lock.file(), &status) == 0 && status.st_uid == ::geteuid() &&
         (status.st_mode & 077) == 0;
}

std::string read_record(int directory) {
  const int file = ::openat(directory, kRecordName, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return {};
  struct stat status {};
  std::string text;
  if (::fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_size <= kMaxRecordBytes) {
    text.resize(static_cast<std::size_t>(status.st_size));
    std::size_t size = 0;
    while (size < text.size()) {
      const ssize_t count = ::read(file, text.data() + size, text.size() - size);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) break;
      size += static_cast<std::size_t>(count);
    }
    text.resize(size);
  }
  ::close(file);
  return text;
}

std::vector<std::string> finished_files(int directory, std::string_view kept) {
  std::vector<std::string> names = names_in(directory).value_or(std::vector<std::string>());
  std::erase_if(names, [&](const std::string& name) {
    struct stat status {};
    return !name.ends_with(kept) || name.find(kPartial) != std::string::npos ||
           ::fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 ||
           !S_ISREG(status.st_mode) || status.st_uid != ::geteuid() || status.st_nlink != 1;
  });
  std::ranges::sort(names);
  return names;
}

Status remove(const Claim& claim) {
  const fs::path& path = claim.leftover.path;
  struct stat status {};
  if (::fstat(claim.lock.file(), &status) != 0) return file_error(errno, path, "look at");
  if (S_ISREG(status.st_mode)) {
    return ::unlink(path.c_str()) == 0 ? Status() : file_error(errno, path, "remove");
  }
  for (const std::string& name : names_in(claim.lock.file()).value_or(std::vector<std::string>())) {
    if (::unlinkat(claim.lock.file(), name.c_str(), 0) != 0) {
      return file_error(errno, path / name, "remove");
    }
  }
  return ::rmdir(path.c_str()) == 0 ? Status() : file_error(errno, path, "remove");
}

}  // namespace leftover
}  // namespace subbyte
