#include "base/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/file_error.h"
#include "base/folder.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSendBytes = uint64_t{64} << 20;

/// 0 or errno. Gives a file what the one has that it replaces. Where the group cannot be the same
/// its rights are nobody's.
int take_mode(int file, const struct stat& replaced) {
  constexpr mode_t kOfGroup = 0070;
  struct stat status {};
  if (::fstat(file, &status) != 0) return errno;
  mode_t mode = replaced.st_mode & 0777;
  const bool is_root = ::geteuid() == 0 && status.st_uid != replaced.st_uid;
  const auto user = is_root ? replaced.st_uid : static_cast<uid_t>(-1);  // -1: as it is
  const bool is_other = is_root || status.st_gid != replaced.st_gid;
  if (is_other && ::fchown(file, user, replaced.st_gid) != 0) mode &= ~kOfGroup;
  // Not asked for in vain: some file systems have one mode for all and refuse.
  if ((status.st_mode & 0777) == mode) return 0;
  return ::fchmod(file, mode) == 0 ? 0 : errno;
}

}  // namespace

Result<OutputFile> OutputFile::create(const fs::path& path, bool overwrite) {
  OutputFile output;
  SUBBYTE_TRY(Place place, Place::of(path));
  SUBBYTE_TRY(output.replaced_, place.check(overwrite));
  output.overwrite_ = overwrite;
  // Who may not read the file that is replaced may not read the new one while it is written.
  const mode_t mode = output.replaced_ ? 0600 : 0666;
  SUBBYTE_TRY(output.partial_, Partial::make(std::move(place), Partial::Kind::kFile, mode));
  return output;
}

Result<OutputFile> OutputFile::standard_output() {
  OutputFile output;
  output.standard_output_ = Descriptor(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  if (!output.standard_output_) return file_error(errno, output.name(), "open");
  return output;
}

fs::path OutputFile::name() const {
  return partial_ ? partial_->place().given : "standard output";
}

Status OutputFile::put(std::span<const std::byte> bytes, std::optional<uint64_t> offset) {
  if (file() < 0) return file_error(EBADF, name(), "write");
  while (!bytes.empty()) {
    const ssize_t written =
        offset ? ::pwrite(file(), bytes.data(), bytes.size(), static_cast<off_t>(*offset))
               : ::write(file(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return file_error(written < 0 ? errno : EIO, name(), "write");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    if (offset) *offset += static_cast<uint64_t>(written);
    unsent_ += static_cast<uint64_t>(written);
  }
#ifdef SYNC_FILE_RANGE_WRITE
  // The disk works while the rest is made, so that commit() waits for little.
  if (partial_ && unsent_ >= kSendBytes) {
    ::sync_file_range(file(), 0, 0, SYNC_FILE_RANGE_WRITE);
    unsent_ = 0;
  }
#endif
  return {};
}

Status OutputFile::write(std::span<const std::byte> bytes) {
  return put(bytes, std::nullopt);
}

Status OutputFile::write(std::string_view text) {
  return put(std::as_bytes(std::span(text)), std::nullopt);
}

Status OutputFile::write_at(uint64_t offset, std::span<const std::byte> bytes) {
  if (standard_output_) return file_error(ESPIPE, name(), "write out of order to");
  return put(bytes, offset);
}

/// 0 or errno.
int OutputFile::finish() {
  if (replaced_) {
    if (const int failure = take_mode(file(), *replaced_); failure != 0) return failure;
  }
  while (::fsync(file()) != 0) {
    if (errno != EINTR) return errno;
  }
  // close() reports late write errors (NFS, quota): of a copy, for the file itself stays locked
  // until it has its name. After EINTR the descriptor is closed on Linux.
  const int copy = ::fcntl(file(), F_DUPFD_CLOEXEC, 3);
  return copy < 0 || (::close(copy) != 0 && errno != EINTR) ? errno : 0;
}

Status OutputFile::commit() {
  if (file() < 0) return file_error(EBADF, name(), "commit");
  if (standard_output_) {
    const bool closed = ::close(standard_output_.release()) == 0 || errno == EINTR;
    return closed ? Status() : file_error(errno, name(), "write");
  }
  const Place& place = partial_->place();
  int failure = finish();
  if (failure == 0 && overwrite_) {
    // What is to be replaced may have become a link meanwhile.
    if (const auto found = place.check(true); !found.ok()) {
      partial_->discard();
      return found.error();
    }
  }
  if (failure == 0) failure = partial_->publish(overwrite_, [] {});
  if (failure != 0) {
    partial_->discard();
    return file_error(failure, place.given, "write");
  }
  failure = sync_folder(place.folder.number());
  return failure == 0 ? Status()
                      : file_error(failure, place.path.parent_path(), "sync the directory");
}

void remove_output(const fs::path& path) {
  const auto place = Place::of(path);
  if (place.ok()) unlink_surely(place->folder.number(), place->name.c_str(), 0);
}

}  // namespace subbyte
