#pragma once
// A directory that is held open: what is done in it is done there, whoever renames it, or puts
// something else in its place, meanwhile.

#include <filesystem>
#include <string>
#include <string_view>

#include "base/status.h"

namespace subbyte {

class Folder {
 public:
  Folder() = default;
  /// Follows links: how a directory is reached is the user's own affair. Codes: those of
  /// file_error().
  static Result<Folder> open(const std::filesystem::path& path);
  /// The same for the sake of something in it: the error is "<subject>: cannot <action>: ...".
  static Result<Folder> open(const std::filesystem::path& path,
                             const std::filesystem::path& subject, std::string_view action);
  /// The directory of that name in another one, and no link; empty when there is none.
  static Folder open_in(const Folder& parent, const std::string& name);
  /// Another descriptor of a directory that is open; empty when `directory` is negative.
  static Folder copy_of(int directory);
  Folder(Folder&& other) noexcept;
  Folder& operator=(Folder&& other) noexcept;
  ~Folder();

  explicit operator bool() const { return directory_ >= 0; }
  /// The descriptor, for the calls of the system that end in "at".
  int descriptor() const { return directory_; }

  /// Says whether `name` in it is the file or directory that `descriptor` has open.
  bool names(const std::string& name, int descriptor) const;
  /// 0 or errno. Renames `from` in it to `to` in `other` unless there is something of that name;
  /// `is_directory` is what `from` is.
  int rename_exclusive(const std::string& from, const Folder& other, const std::string& to,
                       bool is_directory) const;
  /// 0 or errno. Waits until what was renamed or created in it is on the disk.
  int sync() const;

 private:
  explicit Folder(int directory) : directory_(directory) {}

  int directory_ = -1;
};

}  // namespace subbyte
