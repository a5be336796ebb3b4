#include "completions/result_lines.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/file_error.h"
#include "json/events.h"
#include "json/strict_json.h"

namespace subbyte {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 18;
constexpr std::size_t kMaxJobEntries = 1 << 16;

/// Takes what is wanted of a line from the events of the parser; the answer passes by.
class LineReader final : public json::Events {
 public:
  bool null() override { return value(Kind::kNull); }
  bool boolean(bool) override { return value(Kind::kOther); }
  bool number_integer(int64_t) override { return value(Kind::kOther); }
  bool number_unsigned(uint64_t number) override {
    if (is_member("line") && number > 0 && number <= static_cast<uint64_t>(INT64_MAX)) {
      line_.number = static_cast<int64_t>(number);
    }
    return value(Kind::kOther);
  }
  bool number_float(double, const std::string&) override { return value(Kind::kOther); }
  bool string(std::string& text) override {
    if (is_member("request_sha256")) line_.request_sha256 = text;
    if (in_job_ && depth_ == 2) {
      if (line_.job->size() == kMaxJobEntries) return fail("a job of too many options");
      if (!line_.job->emplace(job_key_, text).second) return fail("an option of the job twice");
      return true;
    }
    return value(is_member("request_sha256") ? Kind::kText : Kind::kOther);
  }

  bool start_object() override { return open(); }
  bool start_array() override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(std::string& name) override {
    if (in_job_ && depth_ == 2) job_key_ = name;
    if (depth_ != 1) return true;
    const auto* const found = std::ranges::find(kMembers, name);
    member_ = found == kMembers.end() ? kMembers.size() : found - kMembers.begin();
    if (member_ == kMembers.size()) return true;
    if (has_[member_]) return fail("a member twice");
    has_[member_] = true;
    return true;
  }

  void syntax_error(std::string_view problem) override { fail(problem); }

  /// What is wrong, empty if nothing is.
  const std::string& problem() const { return problem_; }
  /// Whether all that each line has was there.
  bool is_complete() const { return line_.number > 0 && has_text_; }
  ResultLine take() { return std::move(line_); }

 private:
  enum class Kind : uint8_t { kNull, kText, kOther };
  static constexpr std::array<std::string_view, 4> kMembers = {"line", "request_sha256", "error",
                                                               "job"};

  bool is_member(std::string_view name) const {
    return depth_ == 1 && member_ < kMembers.size() && kMembers[member_] == name;
  }

  bool value(Kind kind) {
    if (in_job_) return fail("a job whose options are no texts");
    if (is_member("error")) line_.is_error = kind != Kind::kNull;
    has_text_ = has_text_ || kind == Kind::kText;
    return true;
  }

  bool open() {
    if (in_job_) return fail("a job whose options are no texts");
    if (is_member("error")) line_.is_error = true;
    if (is_member("job")) {
      in_job_ = true;
      line_.job.emplace();
    }
    if (++depth_ <= json::kMaxDepth) return true;
    return fail("nested deeper than " + std::to_string(json::kMaxDepth) + " levels");
  }

  bool close() {
    --depth_;
    in_job_ = false;
    return true;
  }

  bool fail(std::string_view problem) {
    problem_ = problem;
    return false;
  }

  ResultLine line_;
  int depth_ = 0;
  std::size_t member_ = kMembers.size();  // of the object around all, the last one that began
  std::array<bool, kMembers.size()> has_{};
  bool has_text_ = false;  // the request_sha256
  bool in_job_ = false;
  std::string job_key_;
  std::string problem_;
};

}  // namespace

std::string ResultLines::where() const {
  return path_.native() + ":" + std::to_string(number_);
}

Error ResultLines::foreign(std::string_view found) const {
  return {"results.foreign",
          where()
              .append(": expected an output of this command to go on with, found ")
              .append(found)
              .append("; name another file")};
}

bool ResultLines::is_at_end() {
  if (at_ == buffer_.size()) fill();
  return at_ == buffer_.size();
}

std::string_view ResultLines::next_part() {
  if (is_at_end()) return {};
  const std::string_view rest = std::string_view(buffer_).substr(at_);
  const std::string_view part = rest.substr(0, rest.find('\n'));
  has_nul_ = has_nul_ || part.find('\0') != part.npos;
  at_ += part.size();
  return part;
}

/// Puts the next bytes of the file after those that are not read yet.
void ResultLines::fill() {
  buffer_.erase(0, std::exchange(at_, 0));
  const std::size_t held = buffer_.size();
  buffer_.resize(held + std::min<uint64_t>(kReadBytes, end_ - read_bytes_));
  ssize_t count = 0;
  do {
    count = ::pread(file_, buffer_.data() + held, buffer_.size() - held,
                    static_cast<off_t>(read_bytes_));
  } while (count < 0 && errno == EINTR);
  if (count < 0) status_ = file_error(errno, path_, "read");
  buffer_.resize(held + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  read_bytes_ += buffer_.size() - held;
  if (count <= 0) end_ = read_bytes_;
}

bool ResultLines::begins_as_all() {
  if (buffer_.size() - at_ < kResultLine.size()) fill();
  return std::string_view(buffer_).substr(at_).starts_with(kResultLine);
}

Result<std::optional<ResultLine>> ResultLines::next() {
  if (is_at_end()) {
    SUBBYTE_CHECK(status_);
    return std::optional<ResultLine>();
  }
  ++number_;
  if (!begins_as_all()) return foreign("something else");
  LineReader reader;
  json::read_events([this] { return next_part(); }, reader);
  SUBBYTE_CHECK(status_);
  if (!reader.problem().empty()) return foreign(reader.problem());
  // The parser takes a NUL for the end of the text.
  if (!reader.is_complete() || has_nul_) return foreign("something else");
  ++at_;
  return std::optional<ResultLine>(reader.take());
}

}  // namespace subbyte
