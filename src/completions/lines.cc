#include "completions/lines.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/file_error.h"

namespace subbyte {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 18;

}  // namespace

Result<Lines> Lines::open(const std::filesystem::path& path) {
  const bool is_input = path == "-";
  // Without waiting for the other end of a pipe.
  const int file =
      is_input ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) return file_error(errno, path, "open");
  Lines lines(file, is_input ? "standard input" : path);
  if (!is_input) lines.own_ = Descriptor(file);
  struct stat status {};
  if (::fstat(file, &status) != 0) return file_error(errno, lines.path_, "examine");
  if (!S_ISREG(status.st_mode)) {
    return Error{"file.not_regular",
                 lines.path_.native() + ": expected a regular file; `--prompts -` reads a pipe"};
  }
  return lines;
}

std::string Lines::where() const {
  return path_.native() + ":" + std::to_string(number_);
}

Status Lines::fill() {
  buffer_.erase(0, std::exchange(begin_, 0));
  const std::size_t held = buffer_.size();
  buffer_.resize(held + kReadBytes);
  ssize_t count = 0;
  do {
    count = ::pread(file_, buffer_.data() + held, kReadBytes, static_cast<off_t>(read_bytes_));
  } while (count < 0 && errno == EINTR);
  const int error_number = errno;
  buffer_.resize(held + static_cast<std::size_t>(count < 0 ? 0 : count));
  if (count < 0) return file_error(error_number, path_, "read");
  read_bytes_ += static_cast<uint64_t>(count);
  at_end_ = count == 0;
  return {};
}

Result<std::optional<std::string>> Lines::next() {
  offset_ = read_bytes_ - (buffer_.size() - begin_);
  std::size_t searched = 0;
  while (true) {
    const std::size_t end = buffer_.find('\n', begin_ + searched);
    is_whole_ = end != std::string::npos;
    const std::size_t length = (is_whole_ ? end : buffer_.size()) - begin_;
    if (!is_whole_ && !at_end_ && length <= kMaxLineBytes) {
      searched = length;
      SUBBYTE_CHECK(fill());
      continue;
    }
    if (!is_whole_ && length == 0) return std::optional<std::string>();
    ++number_;
    if (length > kMaxLineBytes) {
      return Error{"file.line_too_long",
                   where() + ": longer than " + std::to_string(kMaxLineBytes) + " bytes"};
    }
    std::optional<std::string> line = buffer_.substr(begin_, length);
    begin_ += length + (is_whole_ ? 1 : 0);
    return line;
  }
}

}  // namespace subbyte
