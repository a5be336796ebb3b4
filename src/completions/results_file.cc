#include "completions/results_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/file_error.h"
#include "base/folder.h"
#include "base/partial.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kAfterNumber = ",\"custom_id\":";

/// Reads a part of the file, fewer bytes at its end.
Result<std::string> read_part(int file, uint64_t begin, std::size_t size, const fs::path& path) {
  std::string part(size, '\0');
  std::size_t done = 0;
  while (done < size) {
    const ssize_t count =
        ::pread(file, part.data() + done, size - done, static_cast<off_t>(begin + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return file_error(errno, path, "read");
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  part.resize(done);
  return part;
}

/// After the last end of a line.
Result<uint64_t> end_of_lines(int file, uint64_t size, const fs::path& path) {
  constexpr uint64_t kPartBytes = uint64_t{1} << 18;
  while (size > 0) {
    const uint64_t begin = size > kPartBytes ? size - kPartBytes : 0;
    SUBBYTE_TRY(const std::string part, read_part(file, begin, size - begin, path));
    if (const auto at = part.rfind('\n'); at != std::string::npos) return begin + at + 1;
    size = begin;
  }
  return 0;
}

/// Whether a text begins so far that only a line of ours does.
bool is_begin_of_ours(std::string_view text) {
  if (!text.starts_with(kResultLine)) return false;
  text.remove_prefix(kResultLine.size());
  const auto end = text.find_first_not_of("0123456789");
  return end != std::string_view::npos && end > 0 && text.substr(end).starts_with(kAfterNumber);
}

/// The same of a text that may be shorter than what all lines begin with.
bool may_be_begin_of_ours(std::string_view text) {
  return kResultLine.starts_with(text.substr(0, kResultLine.size()));
}

}  // namespace

Result<ResultsFile> ResultsFile::open(const fs::path& path) {
  if (path == "-") {
    ResultsFile results("standard output");
    results.file_ = Descriptor(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
    if (!results.file_) return file_error(errno, results.path_, "open");
    results.is_stdout_ = true;
    return results;
  }
  const fs::path parent = path.has_parent_path() ? path.parent_path() : ".";
  ResultsFile results(path);
  results.directory_ = Descriptor(::open(parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!results.directory_) return file_error(errno, path, "open");
  const fs::path name = path.filename();
  const int flags = O_RDWR | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW;
  const int directory = results.directory_.number();
  Descriptor& file = results.file_;
  file = Descriptor(::openat(directory, name.c_str(), flags | O_CREAT | O_EXCL, 0666));
  const bool is_new = static_cast<bool>(file);
  if (!is_new && errno == EEXIST) file = Descriptor(::openat(directory, name.c_str(), flags));
  if (!file && errno == ELOOP) return link_error(path);
  if (!file) return file_error(errno, path, "open");
  SUBBYTE_CHECK(results.lock());
  results.is_new_ = is_new;  // not before it is locked: it may be another job's by then
  SUBBYTE_CHECK(results.read());
  return results;
}

ResultsFile::~ResultsFile() {
  if (file_ && is_new_ && has_its_name()) {
    ::unlinkat(directory_.number(), path_.filename().c_str(), 0);
  }
}

Status ResultsFile::lock() {
  struct stat status {};
  if (::fstat(file_.number(), &status) != 0) return file_error(errno, path_, "examine");
  if (!S_ISREG(status.st_mode)) {
    return Error{"file.not_regular", path_.native() + ": expected a regular file"};
  }
  if (status.st_uid != ::geteuid()) {
    return Error{"file.permission",
                 path_.native() +
                     ": belongs to another user, and what is in it is not gone on with; name "
                     "another file"};
  }
  const bool is_locked = ::flock(file_.number(), LOCK_EX | LOCK_NB) == 0;
  if (!is_locked && errno != EWOULDBLOCK) return file_error(errno, path_, "lock");
  if (::fstat(file_.number(), &status) != 0) return file_error(errno, path_, "examine");
  size_ = static_cast<uint64_t>(status.st_size);
  if (is_locked && status.st_nlink > 0) return {};  // else the other job has removed it by now
  return Error{"file.locked", path_.native() + ": another job is writing to it"};
}

Status ResultsFile::read() {
  SUBBYTE_TRY(const uint64_t end, end_of_lines(file_.number(), size_, path_));
  ResultLines lines(file_.number(), path_, end);
  while (true) {
    SUBBYTE_TRY(std::optional<ResultLine> line, lines.next());
    if (!line) break;
    Answer answer = {std::move(line->request_sha256), line->is_error};
    if (!done_.emplace(line->number, std::move(answer)).second) {
      return lines.foreign("a second answer to line " + std::to_string(line->number));
    }
    if (line->job && record_.empty()) record_ = *std::move(line->job);
  }
  return end == size_ ? Status() : remove_cut_line(end, size_);
}

/// What is after the last end of a line. Of a file without a whole line so much must be there that
/// nobody else would have written it.
Status ResultsFile::remove_cut_line(uint64_t begin, uint64_t end) {
  constexpr std::size_t kLongestBegin = 64;
  SUBBYTE_TRY(
      const std::string text,
      read_part(file_.number(), begin, std::min<uint64_t>(kLongestBegin, end - begin), path_));
  const bool is_ours = done_.empty() ? is_begin_of_ours(text) : may_be_begin_of_ours(text);
  if (!is_ours) {
    return Error{"results.foreign",
                 path_.native() + ": expected an output of this command to go on with, found " +
                     "something else; name another file"};
  }
  if (::ftruncate(file_.number(), static_cast<off_t>(begin)) != 0) {
    return file_error(errno, path_, "remove the line that was cut off");
  }
  size_ = begin;
  return {};
}

bool ResultsFile::has_its_name() const {
  return names(directory_.number(), path_.filename().c_str(), file_.number());
}

Status ResultsFile::verify_unchanged() const {
  if (is_stdout_) return {};
  struct stat status {};
  if (::fstat(file_.number(), &status) != 0) return file_error(errno, path_, "examine");
  if (!has_its_name()) {
    return Error{"file.changed", path_.native() + ": was deleted, renamed or replaced by others"};
  }
  if (static_cast<uint64_t>(status.st_size) == size_) return {};
  return Error{"file.changed", path_.native() + ": expected the " + std::to_string(size_) +
                                   " bytes that this job wrote, found " +
                                   std::to_string(status.st_size) + " bytes"};
}

Status ResultsFile::append(std::string_view line) {
  SUBBYTE_CHECK(verify_unchanged());
  const std::string text = std::string(line) + "\n";
  is_new_ = false;
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::write(file_.number(), text.data() + done, text.size() - done);
    if (count >= 0) {
      done += static_cast<std::size_t>(count);
      continue;
    }
    if (errno == EINTR) continue;
    const int error_number = errno;
    // Without the part that was written; where even that fails, the next run removes it.
    if (!is_stdout_) static_cast<void>(::ftruncate(file_.number(), static_cast<off_t>(size_)) == 0);
    return file_error(error_number, path_, "write");
  }
  size_ += text.size();
  return {};
}

}  // namespace subbyte
