#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "base/file_error.h"

namespace subbyte {
namespace {

std::string_view kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

Error not_regular(const std::filesystem::path& path, std::string_view found) {
  return {"file.not_regular",
          path.native() + ": expected a regular file, found " + std::string(found)};
}

Error open_error(int error_number, const std::filesystem::path& path, Links links) {
  if (error_number == ELOOP && links == Links::kRefuse) {
    return {"file.link", path.native() + ": expected a regular file, found a symbolic link"};
  }
  if (error_number == ELOOP) return not_regular(path, "a loop of symbolic links");
  struct stat status {};
  if (error_number == ENXIO) return not_regular(path, "a socket or a device");
  if (error_number == ENOENT && ::lstat(path.c_str(), &status) == 0) {
    return {"file.not_found", path.native() + ": the symbolic link leads to no file"};
  }
  return file_error(error_number, path, "open");
}

/// Nothing, and errno, where it cannot be opened.
Descriptor open_quietly(int folder, const char* name, Links links) {
  // Without O_NONBLOCK the open of a pipe waits for a writer, for ever.
  const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | (links == Links::kRefuse ? O_NOFOLLOW : 0);
  int file = -1;
  do {
    file = ::openat(folder, name, flags);
  } while (file < 0 && errno == EINTR);
  return Descriptor(file);
}

/// Descriptors from this one on are not kept: the lowest that is free is the one that is given, so
/// it counts those that are open.
int max_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return INT_MAX;
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur / 2, INT_MAX));
}

int64_t nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

FileIdentity identity_of(const struct stat& status) {
  return {.inode = status.st_ino,
          .bytes = static_cast<uint64_t>(status.st_size),
          .modified_ns = nanoseconds(status.st_mtim),
          .changed_ns = nanoseconds(status.st_ctim)};
}

}  // namespace

Result<FileIdentity> file_identity(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return file_error(errno, path, "read the size");
  return identity_of(status);
}

Result<MappedFile> MappedFile::open(const std::filesystem::path& path, Links links) {
  if (path.native().find('\0') != std::string::npos) {
    return Error{"file.not_found", std::string(path.c_str()) + ": a NUL byte in the file name"};
  }
  Descriptor file = open_quietly(AT_FDCWD, path.c_str(), links);
  return file ? map(std::move(file), path) : open_error(errno, path, links);
}

Result<MappedFile> MappedFile::open_in(int folder, const std::string& name,
                                       const std::filesystem::path& path) {
  Descriptor file = open_quietly(folder, name.c_str(), Links::kRefuse);
  return file ? map(std::move(file), path) : open_error(errno, path, Links::kRefuse);
}

Result<MappedFile> MappedFile::map(Descriptor file, const std::filesystem::path& path) {
  MappedFile mapped;
  mapped.path_ = path;
  struct stat status {};
  if (::fstat(file.number(), &status) != 0) return file_error(errno, path, "read the size");
  if (!S_ISREG(status.st_mode)) return not_regular(path, kind_of(status.st_mode));
  mapped.identity_ = identity_of(status);
  mapped.device_ = status.st_dev;
  if (status.st_size > 0) {
    const auto size = static_cast<std::size_t>(status.st_size);
    void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number(), 0);
    if (data == MAP_FAILED) return file_error(errno, path, "map into memory");
    mapped.data_ = {static_cast<const std::byte*>(data), Unmap{size}};
  }
  if (file.number() >= max_descriptors()) {
    std::error_code failure;
    mapped.location_ = std::filesystem::absolute(path, failure);
  } else {
    mapped.file_ = std::move(file);
  }
  return mapped;
}

MappedFile MappedFile::of(std::span<const std::byte> bytes, const std::filesystem::path& path) {
  MappedFile mapped;
  mapped.path_ = path;
  mapped.identity_.bytes = bytes.size();
  if (bytes.empty()) return mapped;
  void* data =
      ::mmap(nullptr, bytes.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  std::memcpy(data, bytes.data(), bytes.size());
  mapped.data_ = {static_cast<const std::byte*>(data), Unmap{bytes.size()}};
  return mapped;
}

void MappedFile::Unmap::operator()(const std::byte* data) const {
  ::munmap(const_cast<std::byte*>(data), size);
}

/// False when the file is not to be found any more under its name, where only that is known.
bool MappedFile::examine(struct stat& status) const {
  if (file_) return ::fstat(file_.number(), &status) == 0;
  return ::stat(location_.c_str(), &status) == 0 && status.st_ino == identity_.inode &&
         status.st_dev == device_;
}

Status MappedFile::verify_unchanged() const {
  SUBBYTE_CHECK(verify_unwritten());
  struct stat status {};
  if (is_in_memory()) return {};
  // The old content is still whole, but other files of the checkpoint may be newer by now.
  if (!examine(status) || status.st_nlink == 0) {
    return Error{"file.changed", path_.native() + ": was deleted or replaced since it was opened"};
  }
  return {};
}

Status MappedFile::verify_unwritten() const {
  struct stat status {};
  if (is_in_memory() || !examine(status)) return {};
  if (static_cast<uint64_t>(status.st_size) != identity_.bytes) {
    return Error{"file.changed", path_.native() + ": was " + std::to_string(identity_.bytes) +
                                     " bytes long when it was opened, is " +
                                     std::to_string(status.st_size) + " bytes now"};
  }
  if (identity_of(status).modified_ns != identity_.modified_ns) {
    return Error{"file.changed", path_.native() + ": was written to since it was opened"};
  }
  return {};
}

void MappedFile::release(std::span<const std::byte> part) const {
  advise(part, MADV_DONTNEED);
}

void MappedFile::prefetch(std::span<const std::byte> part) const {
  advise(part, MADV_WILLNEED);
}

void MappedFile::advise(std::span<const std::byte> part, int advice) const {
  if (data_ == nullptr || is_in_memory()) return;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto start = reinterpret_cast<std::uintptr_t>(data_.get());
  const auto address = reinterpret_cast<std::uintptr_t>(part.data());
  const std::uintptr_t first = (std::max(address, start) + page - 1) / page * page;
  const std::uintptr_t last =
      std::min(address + part.size(), start + data_.get_deleter().size) / page * page;
  // When the system does not take it, nothing is lost but memory or time.
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, advice);
}

bool is_file_with(const std::filesystem::path& path, std::span<const std::byte> start,
                  uint64_t bytes) {
  const auto file = MappedFile::open(path, Links::kRefuse);
  if (!file.ok() || file.value().bytes().size() != bytes || start.size() > bytes) return false;
  return std::ranges::equal(file.value().bytes().first(start.size()), start);
}

}  // namespace subbyte
