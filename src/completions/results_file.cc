#include "completions/results_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <utility>

#include "base/file_error.h"
#include "completions/lines.h"
#include "json/strict_json.h"

namespace subbyte {
namespace {

Error foreign(const std::string& where, const std::string& problem) {
  return {"results.foreign", where + ": expected an output of this command to go on with, found " +
                                 problem + "; name another file"};
}

}  // namespace

Result<ResultsFile> ResultsFile::open(const std::filesystem::path& path) {
  if (path == "-") {
    ResultsFile results(STDOUT_FILENO, "standard output");
    results.is_stdout_ = true;
    return results;
  }
  const int flags = O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  int file = ::open(path.c_str(), flags | O_EXCL, 0666);
  const bool is_new = file >= 0;
  if (!is_new && errno == EEXIST) file = ::open(path.c_str(), flags, 0666);
  if (file < 0) return file_error(errno, path, "open");
  ResultsFile results(file, path);
  SUBBYTE_CHECK(results.prepare());
  results.is_new_ = is_new;  // not before it is locked: it may be another job's by then
  SUBBYTE_CHECK(results.read());
  return results;
}

ResultsFile::ResultsFile(ResultsFile&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, -1)),
      is_stdout_(other.is_stdout_),
      is_new_(std::exchange(other.is_new_, false)),
      done_(std::move(other.done_)) {}

ResultsFile::~ResultsFile() {
  if (file_ < 0 || is_stdout_) return;
  if (is_new_) ::unlink(path_.c_str());
  ::close(file_);
}

Status ResultsFile::prepare() {
  struct stat status {};
  if (::fstat(file_, &status) != 0) return file_error(errno, path_, "examine");
  if (!S_ISREG(status.st_mode)) {
    return Error{"file.not_regular", path_.native() + ": expected a regular file"};
  }
  const bool is_locked = ::flock(file_, LOCK_EX | LOCK_NB) == 0;
  if (!is_locked && errno != EWOULDBLOCK) return file_error(errno, path_, "lock");
  if (::fstat(file_, &status) != 0) return file_error(errno, path_, "examine");
  if (is_locked && status.st_nlink > 0) return {};  // else the other job has removed it by now
  return Error{"file.locked", path_.native() + ": another job is writing to it"};
}

Status ResultsFile::read() {
  Lines lines(file_, path_);
  while (true) {
    SUBBYTE_TRY(const std::optional<std::string> line, lines.next());
    if (!line) return {};
    const std::string_view begin = std::string_view(*line).substr(0, kResultLine.size());
    if (!lines.is_whole()) {
      if (!kResultLine.starts_with(begin)) return foreign(lines.where(), "something else");
      if (::ftruncate(file_, static_cast<off_t>(lines.offset())) == 0) return {};
      return file_error(errno, path_, "remove the line that was cut off");
    }
    if (begin != kResultLine) return foreign(lines.where(), "something else");
    SUBBYTE_TRY(const json::Value value,
                json::parse(*line, lines.where(), {}, json::kTextMemoryFactor));
    SUBBYTE_TRY(const json::Object object, json::Object::of(value, lines.where()));
    constexpr int64_t kLast = std::numeric_limits<int64_t>::max();
    SUBBYTE_TRY(const int64_t number, object.required_integer("line", 1, kLast));
    SUBBYTE_TRY(std::string digest, object.required_string("request_sha256"));
    if (!done_.emplace(number, std::move(digest)).second) {
      return foreign(lines.where(), "a second answer to line " + std::to_string(number));
    }
  }
}

Status ResultsFile::append(std::string_view line) {
  const std::string text = std::string(line) + "\n";
  is_new_ = false;
  const off_t before = is_stdout_ ? 0 : ::lseek(file_, 0, SEEK_END);
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::write(file_, text.data() + done, text.size() - done);
    if (count >= 0) {
      done += static_cast<std::size_t>(count);
      continue;
    }
    if (errno == EINTR) continue;
    const int error_number = errno;
    // Without the part that was written; where even that fails, the next run removes it.
    if (!is_stdout_) static_cast<void>(::ftruncate(file_, before) == 0);
    return file_error(error_number, path_, "write");
  }
  return {};
}

}  // namespace subbyte
