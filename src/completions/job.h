#pragma once
// Many requests from a file, answered into another one:
//
//   prompts.jsonl --check all--> lines without an answer --> Session --> results.jsonl
//
// A line is a request (completions/request.h) with a "custom_id" or "id" that comes back, or one of
// OpenAI's batches: {"custom_id": .., "method": "POST", "url": "/v1/completions", "body": {..}}.
// Whatever is wrong with the form of a line or with its options is refused before anything is
// computed, by its number. What is wrong with its messages or tools, and what only the model can
// say of a request (a prompt longer than the context), is an error in its line of the results, and
// the others go on. What happens to the machine or to the files is no
// answer: it ends the run, and the next one has those lines again.

#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "completions/answer.h"
#include "completions/lines.h"
#include "completions/request.h"
#include "completions/results_file.h"
#include "session/session.h"

namespace subbyte {

struct JobOptions {
  Request defaults;     // what a line does not say
  uint64_t seed = 0;    // that seeds of lines which say none are made of
  int64_t context = 0;  // positions of a sample at most, at most those of the model
  std::string model;    // its name in the results
  /// Tells this model and these options from others. It has a date where a prompt may name it
  /// (defaults.date); of a job that is gone on with that is the date of its beginning.
  JobRecord identity;
};

inline constexpr const char* kJobDate = "date";
/// How the names of files begin in a record; their values are digests.
inline constexpr std::string_view kJobFile = "file ";

struct JobCounts {
  int64_t lines = 0;    // requests of the file
  int64_t skipped = 0;  // that had an answer
  int64_t done = 0;     // in this run, those that failed included
  int64_t failed = 0;   // in this run
  int64_t errors = 0;   // that stand in the results instead of answers, those of earlier runs, too
  TokenCounts tokens;   // in this run
};

class Job {
 public:
  /// Reads and checks all of `prompts`, and what `results` holds of it. `text` must outlive this.
  /// Codes: those of Lines, read_completion and ResultsFile; job.line for lines with both
  /// a body and fields of one, job.duplicate_id, job.other_results for results that are not of
  /// this input with these options, with the names of what differs.
  static Result<Job> open(const std::filesystem::path& prompts,
                          const std::filesystem::path& results, const TextSetup& text,
                          JobOptions options);

  const JobCounts& counts() const { return counts_; }
  bool is_done() const { return counts_.skipped == counts_.lines; }
  /// Positions that the longest sample may take.
  int64_t longest() const { return longest_; }
  /// Says whether some lines want scores of their prompts.
  bool scores_prompts() const { return scores_prompts_; }

  /// Answers what has no answer yet, with the text setup that the job was opened with. `progress`
  /// is called after each step and each answer. An error is one of the machine or of the files,
  /// file.changed if the results are not there any more in the end; what was answered before stays,
  /// and the session has no request of the job any more.
  Status run(Session& session, const std::function<void(const JobCounts&)>& progress);

 private:
  struct Line {
    int64_t number = 0;
    std::string where;
    std::string digest;
    json::Value custom_id;
    CompletionRequest request;
    Status conversation;  // what is wrong with its messages
  };
  struct Active {
    Line line;
    TokenCounts tokens;
    Echo echo;
    std::deque<Choice> choices;  // of the samples
    int64_t num_left = 0;        // of them that have not ended
  };

  Job(std::filesystem::path prompts, ResultsFile results, const TextSetup& text, JobOptions options)
      : prompts_(std::move(prompts)),
        results_(std::move(results)),
        text_(&text),
        options_(std::move(options)) {}

  Status take_record();
  Status check_all(Lines lines);
  Status keep_date_for(const Line& line);
  Error other_results(const std::string& where, std::string_view problem) const;
  Result<std::optional<Line>> next_line(Lines& lines) const;
  Result<Line> read_line(const std::string& text, const Lines& lines) const;
  int64_t room_for(const CompletionRequest& request, int64_t prompt) const;
  Status answer_all(Session& session, const std::function<void(const JobCounts&)>& progress);
  Status feed(Session& session, Lines& lines);
  Status start(Session& session, Line line);
  Result<Echo> echo_of(const CompletionRequest& request, const std::vector<TokenId>& prompt) const;
  Status take(Session& session, Delta delta);
  Status write_answer(Active& active);
  Status write_failure(const Line& line, const Error& error);
  /// Writes an error of the request down as its answer, and hands any other on.
  Status write_error(const Line& line, const Error& error);
  Status write(const Line& line, json::Value response, json::Value error);

  std::filesystem::path prompts_;
  ResultsFile results_;
  const TextSetup* text_;
  JobOptions options_;
  JobCounts counts_;
  int64_t longest_ = 0;
  bool scores_prompts_ = false;
  std::map<RequestId, Active> active_;
};

}  // namespace subbyte
