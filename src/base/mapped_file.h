#pragma once
// A file mapped for reading. The mapping is private and read-only; nothing is read until touched.

#include <cstddef>
#include <filesystem>
#include <span>

#include "base/status.h"

namespace subbyte {

class MappedFile {
 public:
  /// Refuses everything that is not a regular file, with codes file.not_found,
  /// file.not_regular, file.permission, file.io. An empty file maps to an empty span.
  static Result<MappedFile> open(const std::filesystem::path& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

  /// Error file.changed when the mapped file is no longer as long, or no longer as
  /// old, as when it was opened. Call before long reads: touching a page that was cut off is a
  /// SIGBUS.
  Status verify_unchanged() const;

  /// Gives the whole pages inside `part` back to the system; they are read again when touched.
  /// Used after a tensor has been repacked, so that it does not stay in memory twice.
  void release(std::span<const std::byte> part) const;

 private:
  MappedFile() = default;

  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  int64_t modified_ns_ = 0;
  int file_ = -1;
};

}  // namespace subbyte
