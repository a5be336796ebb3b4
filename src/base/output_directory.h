#pragma once
// A directory that appears whole or not at all: files (no directories) are written into one with a
// name of base/partial_name.h, where only this user may look, and which commit() renames. It is
// held open: in a folder where others may rename, what is done with it is done with none of theirs.

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/leftover.h"
#include "base/partial.h"
#include "base/status.h"

namespace subbyte {

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

  /// Where to create files until commit().
  const std::filesystem::path& path() const { return partial_->path(); }
  /// Files that another run would take over. Without commit() the directory stays where there are
  /// any, and is removed where there are none.
  std::size_t num_finished() const { return partial_->num_finished(); }
  /// Removes the directory, with what is finished in it.
  void discard() { partial_->discard(); }
  Status commit();
  /// The same of a result that is one file of it: the directory goes, and the file has the name.
  Status commit_file(const std::string& name);

 private:
  explicit OutputDirectory(std::unique_ptr<Partial> partial) : partial_(std::move(partial)) {}
  static Result<OutputDirectory> open(Place place, const ResumeRecord* record,
                                      std::string_view kept, const Notice& notice);

  std::unique_ptr<Partial> partial_;
};

}  // namespace subbyte
