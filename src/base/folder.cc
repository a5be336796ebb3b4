#include "base/folder.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cstdio>

namespace subbyte {

Descriptor open_folder(const std::filesystem::path& path) {
  return Descriptor(::open(path.empty() ? "." : path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

Descriptor open_folder_in(int folder, const char* name) {
  return Descriptor(::openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

bool names(int folder, const char* name, int file) {
  struct stat opened {};
  struct stat named {};
  return ::fstat(file, &opened) == 0 && ::fstatat(folder, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

int rename_exclusive(int from_folder, const char* from, int to_folder, const char* to,
                     bool is_directory) {
  if (::renameat2(from_folder, from, to_folder, to, RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  // A file system without that flag (NFS). link() is as exclusive but not for directories, where
  // rename() itself refuses to replace one that holds anything.
  if (is_directory) {
    struct stat status {};
    if (::fstatat(to_folder, to, &status, AT_SYMLINK_NOFOLLOW) == 0) return EEXIST;
    return ::renameat(from_folder, from, to_folder, to) == 0 ? 0 : errno;
  }
  if (::linkat(from_folder, from, to_folder, to, 0) != 0) return errno;
  ::unlinkat(from_folder, from, 0);
  return 0;
}

int sync_folder(int folder) {
  const int failure = ::fsync(folder) == 0 ? 0 : errno;
  // Some file systems cannot sync a directory; they say so with EINVAL.
  return failure == EINVAL ? 0 : failure;
}

int unlink_surely(int folder, const char* name, int flags) {
  constexpr int kAttempts = 3;
  int failure = 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    failure = ::unlinkat(folder, name, flags) == 0 || errno == ENOENT ? 0 : errno;
    if (failure == 0 || failure == ENOTEMPTY) break;
  }
  return failure;
}

int remove_directory(int folder, const char* name, int directory, std::string* file) {
  // Again where the system does not say once what is in it, and where another thread still puts a
  // file there, which it can do once after a signal.
  constexpr int kAttempts = 100;
  int failure = ENOTEMPTY;
  for (int attempt = 0; failure == ENOTEMPTY && attempt < kAttempts; ++attempt) {
    int of_file = 0;
    for_each_name(directory, [&](const char* in_it) {
      const int found = unlink_surely(directory, in_it, 0);
      if (of_file == 0 && found != 0 && file != nullptr) *file = in_it;
      if (of_file == 0) of_file = found;
    });
    failure = of_file != 0 ? of_file : unlink_surely(folder, name, AT_REMOVEDIR);
  }
  return failure;
}

}  // namespace subbyte
