#pragma once
// The output of a job: a line of JSON for each line of its input, appended when it is done, so that
// a job that was stopped goes on where it was:
//
//   {"line": 17, "custom_id": "q17", "request_sha256": "...", "response": {...}, "error": null}
//
// request_sha256 tells that the line is the answer to line 17 of this input with these options.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "base/status.h"

namespace subbyte {

/// How each line begins.
inline constexpr std::string_view kResultLine = "{\"line\":";

class ResultsFile {
 public:
  /// Opens or creates a regular file, locks it, and reads what is in it. A last line that was cut
  /// off is removed; "-" is standard output, from which nothing is read. Codes: file.locked
  /// while another job writes to it, results.foreign for a line that no job wrote or that answers
  /// a line a second time (nothing is changed then), file.not_regular, those of file_error().
  static Result<ResultsFile> open(const std::filesystem::path& path);
  ResultsFile(ResultsFile&& other) noexcept;
  ResultsFile& operator=(ResultsFile&& other) = delete;
  ~ResultsFile();

  /// What was there: lines of the input that have an answer, with their request_sha256.
  const std::map<int64_t, std::string>& done() const { return done_; }
  const std::filesystem::path& path() const { return path_; }

  /// A file that open() has created stays: for jobs that have nothing to append. Else it is removed
  /// with this unless something was appended.
  void keep() { is_new_ = false; }

  /// Appends one line and its end, whole or not at all. Codes: those of file_error().
  Status append(std::string_view line);

 private:
  ResultsFile(int file, std::filesystem::path path) : path_(std::move(path)), file_(file) {}
  Status prepare();
  Status read();

  std::filesystem::path path_;
  int file_;
  bool is_stdout_ = false;
  bool is_new_ = false;  // created here, and without a line
  std::map<int64_t, std::string> done_;
};

}  // namespace subbyte
