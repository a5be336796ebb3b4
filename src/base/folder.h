#pragma once
// What is done in a directory that is held open: it is done there, whoever renames the directory,
// or puts something else in its place, meanwhile. All but open_folder() may be called by signal
// handlers: nothing here allocates, and what is not a Descriptor is 0 or errno.

#include <dirent.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/descriptor.h"

namespace subbyte {

/// Follows links: how a directory is reached is the user's own affair. Nothing, and errno, when it
/// cannot be opened.
Descriptor open_folder(const std::filesystem::path& path);
/// The directory of that name in another one, and no link.
Descriptor open_folder_in(int folder, const char* name);

/// Says whether `name` is the file or directory that `file` has open.
bool names(int folder, const char* name, int file);

/// Calls visit(name) for all names but "." and "..".
template <typename F>
int for_each_name(int folder, F&& visit) {
  alignas(dirent64) char buffer[4096];
  ::lseek(folder, 0, SEEK_SET);
  for (;;) {
    const ssize_t size = ::getdents64(folder, buffer, sizeof buffer);
    if (size <= 0) return size == 0 ? 0 : errno;
    for (ssize_t at = 0; at < size;) {
      const auto* entry = reinterpret_cast<const dirent64*>(buffer + at);
      at += entry->d_reclen;
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") visit(entry->d_name);
    }
  }
}

/// Renames a file, or with `is_directory` a directory, unless there is something of that name.
int rename_exclusive(int from_folder, const char* from, int to_folder, const char* to,
                     bool is_directory);
/// Waits until what was renamed or created in it is on the disk.
int sync_folder(int folder);

/// Unlinks, again where the system fails once. What is not there is no failure.
int unlink_surely(int folder, const char* name, int flags);

/// Removes the directory `name`, which `directory` has open, with the files in it. The name of one
/// that stays is put into `file`, if that is not null.
int remove_directory(int folder, const char* name, int directory, std::string* file = nullptr);

}  // namespace subbyte
