#include "base/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/file_error.h"
#include "base/output_parts.h"
#include "base/partial_outputs.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using output_parts::registry_error;

}  // namespace

Result<OutputFile> OutputFile::create(const fs::path& path, bool overwrite) {
  SUBBYTE_TRY(fs::path target, output_parts::absolute_target(path));
  SUBBYTE_CHECK(output_parts::verify_target(target, overwrite));
  OutputFile output;
  output.path_ = std::move(target);
  output.overwrite_ = overwrite;
  for (int attempt = 0; attempt < 10 && output.file_ < 0; ++attempt) {
    SUBBYTE_CHECK(output.create_temporary());
  }
  if (output.file_ < 0) return file_error(EEXIST, output.path_, "create a temporary name");
  if (partial_outputs::stopping()) return registry_error(output.path_);
  return output;
}

/// Leaves file_ as it is when the name was taken, to be tried again.
Status OutputFile::create_temporary() {
  const fs::path temporary = output_parts::temporary_name(path_);
  if (!partial_outputs::add(temporary.native(), partial_outputs::Kind::kFile)) {
    return registry_error(path_);
  }
  const int file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0) {
    const int error_number = errno;
    partial_outputs::forget(temporary.native());
    if (error_number == EEXIST || error_number == EINTR) return {};
    return file_error(error_number, path_, "create");
  }
  temporary_ = temporary;
  file_ = file;
  // Another process may have taken it for a leftover before it was locked.
  lock_ = leftover::Lock::take(temporary);
  if (!lock_ && lock_.contended()) discard();
  return {};
}

Result<OutputFile> OutputFile::standard_output() {
  OutputFile output;
  output.path_ = "standard output";
  output.file_ = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  if (output.file_ < 0) return file_error(errno, output.path_, "open");
  return output;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      lock_(std::move(other.lock_)),
      file_(std::exchange(other.file_, -1)),
      overwrite_(other.overwrite_) {}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  if (this == &other) return *this;
  discard();
  path_ = std::move(other.path_);
  temporary_ = std::exchange(other.temporary_, {});
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
  ::unlink(temporary_.c_str());
  lock_ = {};
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
  if (temporary_.empty()) return file_error(ESPIPE, path_, "write out of order to");
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
  if (temporary_.empty()) {
    const bool closed = ::close(std::exchange(file_, -1)) == 0 || errno == EINTR;
    return closed ? Status() : file_error(errno, path_, "write");
  }
  int failure = 0;
  do {
    failure = ::fsync(file_) == 0 ? 0 : errno;
  } while (failure == EINTR);
  // close() reports late write errors (NFS, quota). After EINTR the descriptor is closed on Linux.
  if (::close(std::exchange(file_, -1)) != 0 && errno != EINTR && failure == 0) failure = errno;
  // What is to be replaced may have become a link meanwhile.
  const Status target = overwrite_ ? output_parts::verify_target(path_, overwrite_) : Status();
  if (failure == 0 && target.ok()) {
    failure = overwrite_ ? (::rename(temporary_.c_str(), path_.c_str()) == 0 ? 0 : errno)
                         : output_parts::rename_exclusive(temporary_, path_, false);
  }
  if (failure != 0 || !target.ok()) {
    discard();
    return failure != 0 ? file_error(failure, path_, "write") : target;
  }
  partial_outputs::forget(temporary_.native());
  temporary_.clear();
  lock_ = {};
  return output_parts::sync_directory(path_.parent_path());
}

}  // namespace subbyte
