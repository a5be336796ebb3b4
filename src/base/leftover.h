#pragma once
// Directories that a killed process left behind, and the locks that tell them from those of living
// ones. Internal to output_file.cc.

#include <filesystem>
#include <string_view>

namespace subbyte::leftover {

inline constexpr const char* kRecordName = "resume.json";

/// A lock on a directory, held until the process or this object ends.
class Lock {
 public:
  Lock() = default;
  /// Empty when the directory is not there, is a link, or is locked already.
  static Lock take(const std::filesystem::path& directory);
  Lock(Lock&& other) noexcept;
  Lock& operator=(Lock&& other) noexcept;
  ~Lock();

  explicit operator bool() const { return file_ >= 0; }

 private:
  int file_ = -1;
};

struct Directory {
  std::filesystem::path path;  // empty: none
  Lock lock;
};

/// A directory `<target>.partial-*` that no process holds and whose record holds exactly `record`.
Directory find(const std::filesystem::path& target, std::string_view record);

/// Removes everything but the record and files that end in `kept` under their final names.
void clean(const std::filesystem::path& directory, std::string_view kept);

}  // namespace subbyte::leftover
