#pragma once
// A directory that appears whole or not at all: files (no directories) are written into one with a
// name of base/partial_name.h, where only this user may look, and which commit() renames. It is
// held open: in a folder where others may rename, what is done with it is done with none of theirs.

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/folder.h"
#include "base/leftover.h"
#include "base/output_parts.h"
#include "base/status.h"

namespace subbyte {

/// By what an output that was not finished is known again. Both parts are text of the caller's own.
struct ResumeRecord {
  std::string what;  // is being made, and how
  std::string from;  // which state of which sources
};

class OutputDirectory {
 public:
  /// Code file.exists when `path` is there already: a directory is never written over. Leftovers of
  /// earlier runs are removed (leftover.h) and told of.
  static Result<OutputDirectory> create(const std::filesystem::path& path,
                                        const Notice& notice = nullptr);

  /// As create(), but goes on where an earlier run stopped. `record` is kept in a file until
  /// commit(). From a leftover with that record, which belongs to this user, which nobody else
  /// could write into and which no living process holds, the files that end in `kept` and were
  /// committed are taken over; what is in them is for the caller to verify. A leftover with the
  /// same `what` and another `from` is of no use any more and removed. When a run was stopped
  /// between the last two steps of commit(), they are done: file.exists says that it is whole.
  static Result<OutputDirectory> resume(const std::filesystem::path& path,
                                        const ResumeRecord& record, std::string_view kept,
                                        const Notice& notice = nullptr);

  /// Says early what resume() will: file.exists, unless an earlier run may have to finish its last
  /// steps there, and what is wrong with the folder above.
  static Status check_place(const std::filesystem::path& path);

  OutputDirectory(OutputDirectory&& other) noexcept;
  OutputDirectory& operator=(OutputDirectory&& other) noexcept;
  OutputDirectory(const OutputDirectory&) = delete;
  OutputDirectory& operator=(const OutputDirectory&) = delete;
  /// Without commit(): removes the directory, unless it has files that resume() would take over.
  ~OutputDirectory();

  /// Where to create files until commit().
  const std::filesystem::path& path() const { return temporary_; }
  /// Files that another run would take over.
  std::size_t num_finished() const;
  /// Removes the directory, with what is finished in it.
  void discard();
  Status commit();

 private:
  OutputDirectory() = default;
  static Result<OutputDirectory> make(const output_parts::Target& target, Folder parent,
                                      std::string_view kept);
  Result<bool> make_temporary();
  Status take_over(const std::vector<leftover::Claim>& claims, const ResumeRecord& record,
                   const Notice& notice);
  Result<std::size_t> take_files(const leftover::Claim& claim);
  bool is_fresh() const;
  int publish();
  void release();

  output_parts::Target target_;
  std::filesystem::path temporary_;
  Folder parent_;
  Folder own_;        // of that name
  std::string kept_;  // empty: nothing is taken over
  leftover::Lock lock_;
};

/// Removes every temporary output of this process but directories with files that resume() would
/// take over, and lets it create no others. For handlers of SIGINT, SIGTERM and SIGHUP that end
/// the process: async-signal-safe. The path of a directory that stays, nullptr if there is none.
const char* remove_partial_outputs() noexcept;

}  // namespace subbyte
