#pragma once
// A file mapped for reading. The mapping is private and read-only; nothing is read until touched.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <utility>

#include "base/descriptor.h"
#include "base/status.h"

struct stat;

namespace subbyte {

/// Identity of a file, and of one state of it, in its file system. The time of the last change of
/// the inode cannot be set back, as the time of the last write can.
struct FileIdentity {
  uint64_t inode = 0;
  uint64_t bytes = 0;
  int64_t modified_ns = 0;  // since 1970
  int64_t changed_ns = 0;
};

/// That of what is at `path`, or where a link there leads, without opening it. Codes: those of
/// file_error().
Result<FileIdentity> file_identity(const std::filesystem::path& path);

/// Treatment of a link in the last part of a path; links before it are always followed.
enum class Links : uint8_t { kFollow, kRefuse };

class MappedFile {
 public:
  /// Refuses everything that is not a regular file, with codes file.not_found,
  /// file.not_regular, file.permission, file.io; file.link for a link that is not to be followed.
  /// An empty file maps to an empty span.
  static Result<MappedFile> open(const std::filesystem::path& path, Links links = Links::kFollow);
  /// The file `name` in a directory that is open, and no link; `path` is where it lies.
  static Result<MappedFile> open_in(int folder, const std::string& name,
                                    const std::filesystem::path& path);

  /// The same of bytes that are copied into memory, with `path` as what they are of. It never
  /// changes.
  static MappedFile of(std::span<const std::byte> bytes, const std::filesystem::path& path);

  std::span<const std::byte> bytes() const { return {data_.get(), data_ ? identity_.bytes : 0}; }
  const std::filesystem::path& path() const { return path_; }
  /// Another name of the file, by which messages call it from now on.
  void set_path(std::filesystem::path path) { path_ = std::move(path); }
  /// As it was when it was opened.
  const FileIdentity& identity() const { return identity_; }

  /// Error file.changed when the mapped file is no longer as long, or no longer as
  /// old, as when it was opened. Call before long reads: touching a page that was cut off is a
  /// SIGBUS.
  Status verify_unchanged() const;
  /// The same, but a file that was deleted or replaced is right: its mapping is as it was.
  Status verify_unwritten() const;

  /// Gives the whole pages inside `part` back to the system; they are read again when touched.
  /// Used after a tensor has been repacked, so that it does not stay in memory twice.
  void release(std::span<const std::byte> part) const;
  /// Lets the system read the whole pages inside `part` while other work is done.
  void prefetch(std::span<const std::byte> part) const;

 private:
  MappedFile() = default;
  static Result<MappedFile> map(Descriptor file, const std::filesystem::path& path);
  bool examine(struct stat& status) const;
  void advise(std::span<const std::byte> part, int advice) const;
  bool is_in_memory() const { return !file_ && location_.empty(); }

  struct Unmap {
    std::size_t size;
    void operator()(const std::byte* data) const;
  };

  std::filesystem::path path_;
  std::unique_ptr<const std::byte[], Unmap> data_;
  FileIdentity identity_;
  uint64_t device_ = 0;  // whose inode it is
  // The mapping outlives the descriptor, which is kept as long as the process has many to spare: a
  // checkpoint may have more shards than files may be open. Without it the name is looked at.
  Descriptor file_;
  std::filesystem::path location_;  // absolute, where there is no descriptor
};

/// Says whether `path` is a regular file, and no link, of so many bytes that begins with `start`.
bool is_file_with(const std::filesystem::path& path, std::span<const std::byte> start,
                  uint64_t bytes);

}  // namespace subbyte
