#include "base/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/file_error.h"
#include "base/partial_name.h"
#include "base/partial_outputs.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using output_parts::registry_error;

constexpr mode_t kPrivate = 0600;
constexpr mode_t kOfGroup = 0070;

}  // namespace

Result<OutputFile> OutputFile::create(const fs::path& path, bool overwrite) {
  OutputFile output;
  SUBBYTE_TRY(output.target_, output_parts::target_of(path));
  SUBBYTE_TRY(output.folder_, output_parts::folder_of(output.target_));
  SUBBYTE_TRY(output.place_,
              output_parts::look_at_place(output.folder_, output.target_, overwrite));
  output.overwrite_ = overwrite;
  for (int attempt = 0; attempt < 10 && output.file_ < 0; ++attempt) {
    SUBBYTE_CHECK(output.create_temporary());
  }
  if (output.file_ < 0) return file_error(EEXIST, output.target_.given, "create a temporary name");
  if (partial_outputs::stopping()) return registry_error(output.target_);
  return output;
}

/// Leaves file_ as it is when the name was taken, to be tried again.
Status OutputFile::create_temporary() {
  const std::string name = partial_name(target_.path.filename().native());
  const std::string full = target_.path.parent_path() / name;
  if (!partial_outputs::add(full, folder_.descriptor(), partial_outputs::Kind::kFile)) {
    return registry_error(target_);
  }
  // Who may not read the file that is replaced may not read the new one while it is written.
  const mode_t mode = place_.is_taken ? kPrivate : 0666;
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  const int file = ::openat(folder_.descriptor(), name.c_str(), flags, mode);
  if (file < 0) {
    const int error_number = errno;
    partial_outputs::forget(full);
    if (error_number == EEXIST || error_number == EINTR) return {};
    return file_error(error_number, target_.given, "create");
  }
  temporary_ = name;
  file_ = file;
  // Another process may have taken it for a leftover before it was locked.
  lock_ = leftover::Lock::take(folder_, name);
  if (!lock_ && lock_.contended()) discard();
  return {};
}

Result<OutputFile> OutputFile::standard_output() {
  OutputFile output;
  output.target_.given = "standard output";
  output.file_ = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  if (output.file_ < 0) return file_error(errno, output.target_.given, "open");
  return output;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : target_(std::move(other.target_)),
      folder_(std::move(other.folder_)),
      temporary_(std::exchange(other.temporary_, {})),
      place_(other.place_),
      lock_(std::move(other.lock_)),
      file_(std::exchange(other.file_, -1)),
      overwrite_(other.overwrite_) {}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  if (this == &other) return *this;
  discard();
  target_ = std::move(other.target_);
  folder_ = std::move(other.folder_);
  temporary_ = std::exchange(other.temporary_, {});
  place_ = other.place_;
  lock_ = std::move(other.lock_);
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
  output_parts::unlink_surely(folder_.descriptor(), temporary_.c_str(), 0);
  lock_ = {};
  partial_outputs::forget((target_.path.parent_path() / temporary_).native());
  temporary_.clear();
}

Status OutputFile::write(std::span<const std::byte> bytes) {
  if (file_ < 0) return file_error(EBADF, target_.given, "write");
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return file_error(written < 0 ? errno : EIO, target_.given, "write");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

Status OutputFile::write_at(uint64_t offset, std::span<const std::byte> bytes) {
  if (file_ < 0) return file_error(EBADF, target_.given, "write");
  if (temporary_.empty()) return file_error(ESPIPE, target_.given, "write out of order to");
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return file_error(written < 0 ? errno : EIO, target_.given, "write");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  return {};
}

Status OutputFile::write(std::string_view text) {
  return write(std::as_bytes(std::span(text)));
}

Status OutputFile::commit() {
  if (file_ < 0) return file_error(EBADF, target_.given, "commit");
  if (temporary_.empty()) {
    const bool closed = ::close(std::exchange(file_, -1)) == 0 || errno == EINTR;
    return closed ? Status() : file_error(errno, target_.given, "write");
  }
  int failure = take_mode();
  do {
    if (failure == 0 || failure == EINTR) failure = ::fsync(file_) == 0 ? 0 : errno;
  } while (failure == EINTR);
  // close() reports late write errors (NFS, quota). After EINTR the descriptor is closed on Linux.
  if (::close(std::exchange(file_, -1)) != 0 && errno != EINTR && failure == 0) failure = errno;
  // What is to be replaced may have become a link meanwhile.
  const auto place = output_parts::look_at_place(folder_, target_, overwrite_);
  const bool may_replace = !overwrite_ || place.ok();  // else the rename will say it
  if (failure == 0 && may_replace) failure = rename_to_target();
  if (failure != 0 || !may_replace) {
    discard();
    return failure != 0 ? file_error(failure, target_.given, "write") : place.error();
  }
  partial_outputs::forget((target_.path.parent_path() / temporary_).native());
  temporary_.clear();
  lock_ = {};
  failure = folder_.sync();
  return failure == 0 ? Status()
                      : file_error(failure, target_.path.parent_path(), "sync the directory");
}

/// 0 or errno. Gives the file what the one has that it replaces. Where the group cannot be the same
/// its rights are nobody's.
int OutputFile::take_mode() {
  struct stat status {};
  if (!place_.is_taken) return 0;
  if (::fstat(file_, &status) != 0) return errno;
  mode_t mode = place_.mode;
  const bool is_root = ::geteuid() == 0 && status.st_uid != place_.user;
  const auto user = is_root ? place_.user : static_cast<uid_t>(-1);  // -1: as it is
  const bool is_other = is_root || status.st_gid != place_.group;
  if (is_other && ::fchown(file_, user, place_.group) != 0) mode &= ~kOfGroup;
  // Not asked for in vain: some file systems have one mode for all and refuse.
  if ((status.st_mode & 0777) == mode) return 0;
  return ::fchmod(file_, mode) == 0 ? 0 : errno;
}

/// 0 or errno.
int OutputFile::rename_to_target() {
  const std::string name = target_.path.filename().native();
  if (!overwrite_) return folder_.rename_exclusive(temporary_, folder_, name, false);
  const int folder = folder_.descriptor();
  return ::renameat(folder, temporary_.c_str(), folder, name.c_str()) == 0 ? 0 : errno;
}

void remove_output(const fs::path& path) {
  const auto folder = output_parts::folder_of({path, path});
  if (folder.ok()) output_parts::unlink_surely(folder->descriptor(), path.filename().c_str(), 0);
}

}  // namespace subbyte
