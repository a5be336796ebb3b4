#include "base/folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/file_error.h"

namespace subbyte {

namespace fs = std::filesystem;

Result<Folder> Folder::open(const fs::path& path) {
  return open(path, path, "open the directory");
}

Result<Folder> Folder::open(const fs::path& path, const fs::path& subject,
                            std::string_view action) {
  const char* name = path.empty() ? "." : path.c_str();
  const int directory = ::open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return file_error(errno, subject, action);
  return Folder(directory);
}

Folder Folder::open_in(const Folder& parent, const std::string& name) {
  const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  return Folder(::openat(parent.directory_, name.c_str(), flags));
}

Folder Folder::copy_of(int directory) {
  return Folder(directory < 0 ? -1 : ::fcntl(directory, F_DUPFD_CLOEXEC, 3));
}

Folder::Folder(Folder&& other) noexcept : directory_(std::exchange(other.directory_, -1)) {}

Folder& Folder::operator=(Folder&& other) noexcept {
  std::swap(directory_, other.directory_);
  return *this;
}

Folder::~Folder() {
  if (directory_ >= 0) ::close(directory_);
}

bool Folder::names(const std::string& name, int descriptor) const {
  struct stat opened {};
  struct stat named {};
  return ::fstat(descriptor, &opened) == 0 &&
         ::fstatat(directory_, name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

int Folder::rename_exclusive(const std::string& from, const Folder& other, const std::string& to,
                             bool is_directory) const {
  const int target = other.directory_;
  if (::renameat2(directory_, from.c_str(), target, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  // A file system without that flag (NFS). link() is as exclusive but not for directories, where
  // rename() itself refuses to replace one that holds anything.
  if (is_directory) {
    struct stat status {};
    if (::fstatat(target, to.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) return EEXIST;
    return ::renameat(directory_, from.c_str(), target, to.c_str()) == 0 ? 0 : errno;
  }
  if (::linkat(directory_, from.c_str(), target, to.c_str(), 0) != 0) return errno;
  ::unlinkat(directory_, from.c_str(), 0);
  return 0;
}

int Folder::sync() const {
  const int error_number = ::fsync(directory_) == 0 ? 0 : errno;
  // Some file systems cannot sync a directory; they say so with EINVAL.
  return error_number == EINVAL ? 0 : error_number;
}

}  // namespace subbyte
