#include "base/leftover.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>
#include <utility>

namespace subbyte::leftover {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPartial = ".partial-";

bool holds(const fs::path& file, std::string_view record) {
  std::error_code failure;
  if (fs::file_size(file, failure) != record.size() || failure) return false;
  std::ifstream stream(file, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(stream), {}) == record;
}

}  // namespace

Lock Lock::take(const fs::path& directory) {
  Lock lock;
  lock.file_ = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (lock.file_ < 0) return lock;
  // Who held it may have given it its final name before the lock came free.
  struct stat opened {};
  struct stat named {};
  const bool locked = ::flock(lock.file_, LOCK_EX | LOCK_NB) == 0;
  if (locked && ::fstat(lock.file_, &opened) == 0 && ::lstat(directory.c_str(), &named) == 0 &&
      opened.st_dev == named.st_dev && opened.st_ino == named.st_ino) {
    return lock;
  }
  return {};
}

Lock::Lock(Lock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}

Lock& Lock::operator=(Lock&& other) noexcept {
  std::swap(file_, other.file_);
  return *this;
}

Lock::~Lock() {
  if (file_ >= 0) ::close(file_);
}

Directory find(const fs::path& target, std::string_view record) {
  const std::string start = target.filename().native() + std::string(kPartial);
  std::error_code failure;
  for (fs::directory_iterator entry(target.parent_path(), failure), end; !failure && entry != end;
       entry.increment(failure)) {
    const fs::path& path = entry->path();
    if (!path.filename().native().starts_with(start)) continue;
    Lock lock = Lock::take(path);
    if (lock && holds(path / kRecordName, record)) return {path, std::move(lock)};
  }
  return {};
}

void clean(const fs::path& directory, std::string_view kept) {
  std::error_code failure;
  for (fs::directory_iterator entry(directory, failure), end; !failure && entry != end;
       entry.increment(failure)) {
    const std::string name = entry->path().filename().native();
    const bool whole = name.ends_with(kept) && name.find(kPartial) == std::string::npos;
    std::error_code ignored;
    if (!whole && name != kRecordName) fs::remove(entry->path(), ignored);
  }
}

}  // namespace subbyte::leftover
