#pragma once
// The lines of a job's output, without their answers: those may be larger than memory.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace subbyte {

/// How each line begins.
inline constexpr std::string_view kResultLine = "{\"line\":";

/// Circumstances that decide the answers of a job beside its lines, by name: options, the machine,
/// files of the model. Values are texts.
using JobRecord = std::map<std::string, std::string>;

/// Part of one line that going on with a job needs.
struct ResultLine {
  int64_t number = 0;  // of the line of the input
  std::string request_sha256;
  bool is_error = false;
  std::optional<JobRecord> job;
};

class ResultLines {
 public:
  /// The bytes of `file` before `end`, which is after the end of a line. `path` is for messages.
  ResultLines(int file, std::filesystem::path path, uint64_t end)
      : file_(file), path_(std::move(path)), end_(end) {}

  /// The next line, nullopt at the end. Of a line no more is in memory than what is kept and the
  /// longest text in it. Codes: results.foreign for a line that no job wrote, file.io.
  Result<std::optional<ResultLine>> next();

  /// "results.jsonl:17", of the line that next() gave last.
  std::string where() const;
  /// An error about that line. Code results.foreign.
  Error foreign(std::string_view found) const;

 private:
  /// Also after an error, which status_ has then.
  bool is_at_end();
  /// More of the line, empty at its end.
  std::string_view next_part();
  void fill();
  bool begins_as_all();

  int file_;
  std::filesystem::path path_;
  uint64_t end_;
  uint64_t read_bytes_ = 0;
  std::string buffer_;
  std::size_t at_ = 0;  // in buffer_
  int64_t number_ = 0;
  bool has_nul_ = false;
  Status status_;
};

}  // namespace subbyte
