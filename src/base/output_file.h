#pragma once
// A file that appears whole or not at all: written to a temporary name beside the target, synced,
// then renamed. An error, an exception or a signal leaves what was there before.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "base/partial.h"
#include "base/status.h"

namespace subbyte {

class OutputFile {
 public:
  /// Creates a file with a name of base/partial_name.h. A file that it replaces hands its mode on,
  /// and its owner where this process may say so. Codes: file.exists when `path` is there and
  /// `overwrite` is false, file.not_regular when it is no file or a link (which is neither replaced
  /// nor written through: /dev/stdout is one), and as for every call here: file.io, file.no_space
  /// (also quota and size limits), file.not_found, file.permission.
  static Result<OutputFile> create(const std::filesystem::path& path, bool overwrite);

  /// The standard output of the process, which has every byte at once and keeps it whatever
  /// happens. Codes: file.io.
  static Result<OutputFile> standard_output();

  /// Appends. Short writes and EINTR are handled.
  Status write(std::span<const std::byte> bytes);
  Status write(std::string_view text);

  /// Writes at a place of its own, beyond the end too, and leaves where write() appends as it is.
  /// Not for the standard output (file.io).
  Status write_at(uint64_t offset, std::span<const std::byte> bytes);

  /// fsync, close, rename, fsync of the directory. The file is at `path` when this succeeds.
  Status commit();

 private:
  OutputFile() = default;
  int file() const { return partial_ ? partial_->descriptor() : standard_output_.number(); }
  std::filesystem::path name() const;
  Status put(std::span<const std::byte> bytes, std::optional<uint64_t> offset);
  int finish();

  std::unique_ptr<Partial> partial_;
  Descriptor standard_output_;           // in its place
  std::optional<struct stat> replaced_;  // the file there
  bool overwrite_ = false;
  uint64_t unsent_ = 0;  // bytes since the system was told to write what it has
};

/// Removes a file from a directory that this process is making, of which it turned out to be of no
/// use, and from no other one that has its name by now.
void remove_output(const std::filesystem::path& path);

}  // namespace subbyte
