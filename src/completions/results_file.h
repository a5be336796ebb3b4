#pragma once
// The output of a job: a line of JSON for each line of its input, appended when it is done, so that
// a job that was stopped goes on where it was:
//
//   {"line": 17, "custom_id": "q17", "request_sha256": "...", "response": {...}, "error": null}
//
// request_sha256 tells that the line is the answer to line 17 of this input with these options. The
// first line that is written has what those were, in "job".

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "base/descriptor.h"
#include "base/status.h"
#include "completions/result_lines.h"

namespace subbyte {

class ResultsFile {
 public:
  /// Opens or creates a regular file, locks it, and reads what is in it. A last line that was cut
  /// off is removed; "-" is standard output, from which nothing is read. Others may write in its
  /// directory: no link is followed, and a file of another user is not gone on with. Codes:
  /// file.locked while another job writes to it, results.foreign for a line that no job wrote or
  /// that answers a line a second time (nothing is changed then), file.not_regular,
  /// file.permission, those of file_error().
  static Result<ResultsFile> open(const std::filesystem::path& path);
  ResultsFile(ResultsFile&& other) = default;
  ~ResultsFile();

  struct Answer {
    std::string request_sha256;
    bool is_error = false;
  };
  /// Answers that were there, by the lines of the input.
  const std::map<int64_t, Answer>& done() const { return done_; }
  /// Record of what decided those answers; empty where no line has one.
  const JobRecord& record() const { return record_; }
  const std::filesystem::path& path() const { return path_; }
  bool is_stdout() const { return is_stdout_; }

  /// A file that open() has created stays: for jobs that have nothing to append. Else it is removed
  /// with this unless something was appended.
  void keep() { is_new_ = false; }

  /// Appends one line and its end, whole or not at all. Codes: those of verify_unchanged() and of
  /// file_error().
  Status append(std::string_view line);

  /// Error file.changed when the file was deleted, renamed, replaced or written by somebody else
  /// meanwhile: what is appended then would be lost.
  Status verify_unchanged() const;

 private:
  explicit ResultsFile(std::filesystem::path path) : path_(std::move(path)) {}
  Status lock();
  Status read();
  Status remove_cut_line(uint64_t begin, uint64_t end);
  bool has_its_name() const;

  std::filesystem::path path_;
  Descriptor directory_;  // that it lies in
  Descriptor file_;
  bool is_stdout_ = false;
  bool is_new_ = false;  // created here, and without a line
  uint64_t size_ = 0;
  std::map<int64_t, Answer> done_;
  JobRecord record_;
};

}  // namespace subbyte
