#pragma once
// Output that appears whole or not at all: written to a temporary name beside the target, synced,
// then renamed. An error, an exception or a signal leaves what was there before.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/leftover.h"
#include "base/status.h"

namespace subbyte {

class OutputFile {
 public:
  /// Creates `<path>.partial-<pid>-<n>`. Codes: file.exists when `path` is there and `overwrite`
  /// is false, file.not_regular when it is no file, and as for every call here: file.io,
  /// file.no_space (also quota and size limits), file.not_found, file.permission.
  static Result<OutputFile> create(const std::filesystem::path& path, bool overwrite);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  /// Removes the temporary file unless commit() succeeded.
  ~OutputFile();

  /// Appends. Short writes and EINTR are handled.
  Status write(std::span<const std::byte> bytes);
  Status write(std::string_view text);

  /// Writes at a place of its own, beyond the end too, and leaves where write() appends as it is.
  Status write_at(uint64_t offset, std::span<const std::byte> bytes);

  /// fsync, close, rename, fsync of the directory. The file is at `path` when this succeeds.
  Status commit();

 private:
  OutputFile() = default;
  void discard();

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int file_ = -1;
  bool overwrite_ = false;
};

/// A directory that appears whole or not at all: files (no directories) are written into
/// `<path>.partial-<pid>-<n>`, which commit() renames.
class OutputDirectory {
 public:
  /// Code file.exists when `path` is there already: a directory is never written over.
  static Result<OutputDirectory> create(const std::filesystem::path& path);

  /// As create(), but goes on where a killed process stopped. `record` says what is being made and
  /// from what; it is kept in a file until commit(). A directory that was left behind with exactly
  /// that record, and that no living process holds, is taken over: files in it that end in `kept`
  /// and were committed stay, all others are removed.
  static Result<OutputDirectory> resume(const std::filesystem::path& path, std::string_view record,
                                        std::string_view kept);

  OutputDirectory(OutputDirectory&& other) noexcept;
  OutputDirectory& operator=(OutputDirectory&& other) noexcept;
  OutputDirectory(const OutputDirectory&) = delete;
  OutputDirectory& operator=(const OutputDirectory&) = delete;
  ~OutputDirectory();

  /// Where to create files until commit().
  const std::filesystem::path& path() const { return temporary_; }
  Status commit();

 private:
  OutputDirectory() = default;
  Status take_over(const std::filesystem::path& leftover);
  void discard();

  std::filesystem::path target_;
  std::filesystem::path temporary_;
  leftover::Lock lock_;  // only with a record
};

/// Removes every temporary output of this process, and lets it create no others. For handlers of
/// SIGINT, SIGTERM and SIGHUP that end the process: async-signal-safe.
void remove_partial_outputs() noexcept;

}  // namespace subbyte
