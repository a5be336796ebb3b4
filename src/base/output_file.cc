#include "base/output_file.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <utility>

#include "base/file_error.h"
#include "base/partial_outputs.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

/// Absolute, so that neither the registry nor the rename depends on the current directory; without
/// the slash at the end of "out/".
Result<fs::path> absolute_target(const fs::path& path) {
  std::error_code failure;
  fs::path target = fs::absolute(path, failure);
  if (!target.has_filename()) target = target.parent_path();
  if (failure || path.empty() || path.native().find('\0') != std::string::npos) {
    return Error{"file.io", std::string(path.c_str()) + ": not a name for an output"};
  }
  return target;
}

/// `<path>.partial-<pid>-<n>`. Random n: two containers that share a directory may share pids.
fs::path temporary_name(const fs::path& target) {
  uint32_t number = 0;
  if (::getrandom(&number, sizeof number, 0) < 0) number = static_cast<uint32_t>(::clock());
  return target.native() + ".partial-" + std::to_string(::getpid()) + "-" + std::to_string(number);
}

Error registry_error(const fs::path& path) {
  return {"file.io", path.native() + (partial_outputs::stopping()
                                          ? ": not created, the process is being stopped"
                                          : ": too many outputs at a time or too long a name")};
}

Status sync_directory(const fs::path& path) {
  const int directory = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return file_error(errno, path, "open the directory");
  const int error_number = ::fsync(directory) == 0 ? 0 : errno;
  ::close(directory);
  // Some file systems cannot sync a directory; they say so with EINVAL.
  if (error_number != 0 && error_number != EINVAL) {
    return file_error(error_number, path, "sync the directory");
  }
  return {};
}

/// Renames unless `to` exists. 0 or errno.
int rename_exclusive(const fs::path& from, const fs::path& to, bool directory) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  // A file system without that flag (NFS). link() is as exclusive but not for directories, where
  // rename() itself refuses to replace one that holds anything.
  if (directory) {
    struct stat status {};
    if (::lstat(to.c_str(), &status) == 0) return EEXIST;
    return ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
  }
  if (::link(from.c_str(), to.c_str()) != 0) return errno;
  ::unlink(from.c_str());
  return 0;
}

/// Keeps signal handlers of this thread out of a few lines.
class SignalBlock {
 public:
  SignalBlock() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &previous_);
  }
  ~SignalBlock() { ::pthread_sigmask(SIG_SETMASK, &previous_, nullptr); }
  SignalBlock(const SignalBlock&) = delete;
  SignalBlock& operator=(const SignalBlock&) = delete;

 private:
  sigset_t previous_;
};

/// Whether an output may take the place of what is at `path`.
Status verify_target(const fs::path& path, bool overwrite) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return {};
  if (!overwrite) return Error{"file.exists", path.native() + ": exists already"};
  // A rename would replace /dev/null as readily as a file.
  if (!S_ISREG(status.st_mode) && !S_ISLNK(status.st_mode)) {
    return Error{"file.not_regular", path.native() + ": is not a regular file, not overwritten"};
  }
  return {};
}

}  // namespace

Result<OutputFile> OutputFile::create(const fs::path& path, bool overwrite) {
  SUBBYTE_TRY(fs::path target, absolute_target(path));
  SUBBYTE_CHECK(verify_target(target, overwrite));
  OutputFile output;
  output.path_ = std::move(target);
  output.overwrite_ = overwrite;
  for (int attempt = 0; attempt < 10 && output.file_ < 0; ++attempt) {
    const fs::path temporary = temporary_name(output.path_);
    if (!partial_outputs::add(temporary.native(), partial_outputs::Kind::kFile)) {
      return registry_error(output.path_);
    }
    output.file_ = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (output.file_ >= 0) {
      output.temporary_ = temporary;
      break;
    }
    const int error_number = errno;
    partial_outputs::forget(temporary.native());
    if (error_number != EEXIST && error_number != EINTR) {
      return file_error(error_number, output.path_, "create");
    }
  }
  if (output.file_ < 0) return file_error(EEXIST, output.path_, "create a temporary name");
  if (partial_outputs::stopping()) return registry_error(output.path_);
  return output;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      file_(std::exchange(other.file_, -1)),
      overwrite_(other.overwrite_) {}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  if (this == &other) return *this;
  discard();
  path_ = std::move(other.path_);
  temporary_ = std::exchange(other.temporary_, {});
  file_ = std::exchange(other.file_, -1);
  overwrite_ = other.overwrite_;
  return *this;
}

OutputFile::~OutputFile() {
  discard();
}

void OutputFile::discard() {
  if (file_ >= 0) ::close(std::exchange(file_, -1));
  if (temporary_.empty()) return;
  ::unlink(temporary_.c_str());
  partial_outputs::forget(temporary_.native());
  temporary_.clear();
}

Status OutputFile::write(std::span<const std::byte> bytes) {
  if (file_ < 0) return file_error(EBADF, path_, "write");
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return file_error(written < 0 ? errno : EIO, path_, "write");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

Status OutputFile::write_at(uint64_t offset, std::span<const std::byte> bytes) {
  if (file_ < 0) return file_error(EBADF, path_, "write");
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return file_error(written < 0 ? errno : EIO, path_, "write");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  return {};
}

Status OutputFile::write(std::string_view text) {
  return write(std::as_bytes(std::span(text)));
}

Status OutputFile::commit() {
  if (file_ < 0) return file_error(EBADF, path_, "commit");
  int failure = 0;
  do {
    failure = ::fsync(file_) == 0 ? 0 : errno;
  } while (failure == EINTR);
  // close() reports late write errors (NFS, quota). After EINTR the descriptor is closed on Linux.
  if (::close(std::exchange(file_, -1)) != 0 && errno != EINTR && failure == 0) failure = errno;
  if (failure == 0) {
    failure = overwrite_ ? (::rename(temporary_.c_str(), path_.c_str()) == 0 ? 0 : errno)
                         : rename_exclusive(temporary_, path_, false);
  }
  if (failure != 0) {
    discard();
    return file_error(failure, path_, "write");
  }
  partial_outputs::forget(temporary_.native());
  temporary_.clear();
  return sync_directory(path_.parent_path());
}

Result<OutputDirectory> OutputDirectory::create(const fs::path& path) {
  SUBBYTE_TRY(fs::path target, absolute_target(path));
  SUBBYTE_CHECK(verify_target(target, false));
  OutputDirectory output;
  output.target_ = std::move(target);
  const fs::path temporary = temporary_name(output.target_);
  if (!partial_outputs::add(temporary.native(), partial_outputs::Kind::kDirectory)) {
    return registry_error(output.target_);
  }
  if (::mkdir(temporary.c_str(), 0777) != 0) {
    const int error_number = errno;
    partial_outputs::forget(temporary.native());
    return file_error(error_number, output.target_, "create");
  }
  output.temporary_ = temporary;
  if (partial_outputs::stopping()) return registry_error(output.target_);
  return output;
}

Result<OutputDirectory> OutputDirectory::resume(const fs::path& path, std::string_view record,
                                                std::string_view kept) {
  SUBBYTE_TRY(const fs::path target, absolute_target(path));
  SUBBYTE_CHECK(verify_target(target, false));
  leftover::Directory found = leftover::find(target, record);
  if (!found.path.empty()) {
    OutputDirectory output;
    output.target_ = target;
    output.lock_ = std::move(found.lock);
    SUBBYTE_CHECK(output.take_over(found.path));
    leftover::clean(output.temporary_, kept);
    return output;
  }
  SUBBYTE_TRY(OutputDirectory output, create(target));
  // Locked before it has a record: without one no process takes it over.
  output.lock_ = leftover::Lock::take(output.temporary_);
  SUBBYTE_TRY(OutputFile file,
              OutputFile::create(output.temporary_ / leftover::kRecordName, false));
  SUBBYTE_CHECK(file.write(record));
  SUBBYTE_CHECK(file.commit());
  return output;
}

/// Gives it a name of this process, under which a signal handler finds it.
Status OutputDirectory::take_over(const fs::path& leftover) {
  const fs::path temporary = temporary_name(target_);
  if (!partial_outputs::add(temporary.native(), partial_outputs::Kind::kDirectory)) {
    return registry_error(target_);
  }
  const int failure = rename_exclusive(leftover, temporary, true);
  if (failure != 0) {
    partial_outputs::forget(temporary.native());
    return file_error(failure, leftover, "rename");
  }
  temporary_ = temporary;
  if (partial_outputs::stopping()) return registry_error(target_);
  return {};
}

OutputDirectory::OutputDirectory(OutputDirectory&& other) noexcept
    : target_(std::move(other.target_)),
      temporary_(std::exchange(other.temporary_, {})),
      lock_(std::move(other.lock_)) {}

OutputDirectory& OutputDirectory::operator=(OutputDirectory&& other) noexcept {
  if (this == &other) return *this;
  discard();
  target_ = std::move(other.target_);
  temporary_ = std::exchange(other.temporary_, {});
  lock_ = std::move(other.lock_);
  return *this;
}

OutputDirectory::~OutputDirectory() {
  discard();
}

void OutputDirectory::discard() {
  if (temporary_.empty()) return;
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);
  partial_outputs::forget(temporary_.native());
  temporary_.clear();
}

Status OutputDirectory::commit() {
  if (temporary_.empty()) return file_error(EBADF, target_, "commit");
  if (lock_ && ::unlink((temporary_ / leftover::kRecordName).c_str()) != 0) {
    return file_error(errno, target_, "remove the record of");
  }
  SUBBYTE_CHECK(sync_directory(temporary_));
  int failure = 0;
  {
    // A handler that empties the directory while it gets its final name would leave half of it.
    const SignalBlock block;
    failure = partial_outputs::begin_commit(temporary_.native())
                  ? rename_exclusive(temporary_, target_, true)
                  : EINTR;
    if (failure == 0) {
      partial_outputs::forget(temporary_.native());
    } else {
      discard();
    }
  }
  if (failure != 0) return file_error(failure == ENOTEMPTY ? EEXIST : failure, target_, "create");
  temporary_.clear();
  return sync_directory(target_.parent_path());
}

}  // namespace subbyte
