#pragma once
// The lines of a file that may be larger than memory.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/descriptor.h"
#include "base/status.h"

namespace subbyte {

inline constexpr std::size_t kMaxLineBytes = std::size_t{64} << 20;

class Lines {
 public:
  /// A regular file; "-" is standard input, which must be one, too. Codes: file.not_regular, those
  /// of file_error().
  static Result<Lines> open(const std::filesystem::path& path);
  /// Reads an open file, which must outlive this, from its beginning.
  Lines(int file, std::filesystem::path path) : path_(std::move(path)), file_(file) {}

  /// The next line without its end, nullopt after the last one. Codes: file.line_too_long (over
  /// kMaxLineBytes), file.io.
  Result<std::optional<std::string>> next();

  /// Number of the line that next() gave last, 1 and up; then where it begins, and whether it has
  /// an end.
  int64_t number() const { return number_; }
  uint64_t offset() const { return offset_; }
  bool is_whole() const { return is_whole_; }
  /// "prompts.jsonl:17"
  std::string where() const;

 private:
  Status fill();

  std::filesystem::path path_;
  Descriptor own_;
  int file_;               // that one, or the caller's
  std::string buffer_;     // what was read
  std::size_t begin_ = 0;  // and not handed out
  uint64_t read_bytes_ = 0;
  bool at_end_ = false;
  int64_t number_ = 0;
  uint64_t offset_ = 0;
  bool is_whole_ = true;
};

}  // namespace subbyte
