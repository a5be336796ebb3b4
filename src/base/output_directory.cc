#include "base/output_directory.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "base/file_error.h"
#include "base/folder.h"
#include "base/output_file.h"
#include "base/signal_block.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kPrivate = 0700;

/// What mkdir() would have given a directory in the place of the private one, by what a new file
/// in it gets: umask() cannot be asked without setting it. Who may read may enter.
mode_t usual_mode(int directory) {
  constexpr const char* kProbe = "resume.mode";
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  const Descriptor file(::openat(directory, kProbe, flags, 0666));
  if (!file) return kPrivate;
  struct stat status {};
  const mode_t mode = ::fstat(file.number(), &status) == 0 ? status.st_mode & 0666 : 0;
  unlink_surely(directory, kProbe, 0);
  return kPrivate | mode | (mode & 0444) >> 2;
}

/// The last steps, after the rename: others may look, and the record goes.
void open_to_others(int directory, mode_t mode) {
  struct stat status {};
  const bool found = ::fstat(directory, &status) == 0;
  ::fchmod(directory, mode | (found ? status.st_mode & S_ISGID : 0));
  unlink_surely(directory, ResumeRecord::kName, 0);
}

Status write_record(const fs::path& directory, const ResumeRecord& record) {
  SUBBYTE_TRY(OutputFile file, OutputFile::create(directory / ResumeRecord::kName, false));
  SUBBYTE_CHECK(file.write(record.what));
  SUBBYTE_CHECK(file.write(record.from));
  return file.commit();
}

}  // namespace

Result<OutputDirectory> OutputDirectory::create(const fs::path& path, const Notice& notice) {
  SUBBYTE_TRY(Place place, Place::of(path));
  return open(std::move(place), nullptr, {}, notice);
}

Status OutputDirectory::check_place(const fs::path& path) {
  SUBBYTE_TRY(const Place place, Place::of(path));
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(place.path / ResumeRecord::kName, ignored))) return {};
  SUBBYTE_CHECK(place.check(false));
  return {};
}

Result<OutputDirectory> OutputDirectory::resume(const fs::path& path, const ResumeRecord& record,
                                                std::string_view kept, const Notice& notice) {
  SUBBYTE_TRY(Place place, Place::of(path));
  // The whole result of a run that was stopped before open_to_others().
  if (const auto unopened = leftover::claim_recorded(place.folder.number(), place.name, record)) {
    open_to_others(unopened.number(), usual_mode(unopened.number()));
    return Error{"file.exists", place.given.native() +
                                    ": exists already, and is whole: an earlier run of this "
                                    "command made it"};
  }
  return open(std::move(place), &record, kept, notice);
}

Result<OutputDirectory> OutputDirectory::open(Place place, const ResumeRecord* record,
                                              std::string_view kept, const Notice& notice) {
  SUBBYTE_CHECK(place.check(false));
  const auto names = leftover::names_in(place.folder.number(), place.name);
  SUBBYTE_TRY(auto partial,
              Partial::make(std::move(place), Partial::Kind::kDirectory, kPrivate, kept));
  std::optional<leftover::Heir> heir;
  if (record != nullptr) {
    SUBBYTE_CHECK(write_record(partial->path(), *record));
    heir = leftover::Heir{partial->descriptor(), *record, std::string(kept)};
  }
  const Place& at = partial->place();
  SUBBYTE_CHECK(leftover::settle(at.folder.number(), at.path.parent_path(), names, notice, heir));
  return OutputDirectory(std::move(partial));
}

Status OutputDirectory::commit() {
  const Place& place = partial_->place();
  if (partial_->descriptor() < 0) return file_error(EBADF, place.given, "commit");
  const int directory = partial_->descriptor();
  int failure = sync_folder(directory);
  if (failure != 0) return file_error(failure, partial_->path(), "sync the directory");
  {
    // A handler that empties the directory while it gets its final name would leave half of it.
    const SignalBlock block;
    const mode_t mode = usual_mode(directory);
    // A kill after the rename leaves what resume() knows.
    failure = partial_->publish(false, [&] { open_to_others(directory, mode); });
    if (failure == ENOTEMPTY) failure = EEXIST;
    // What has the name already is not going to give way to what is finished here.
    if (failure == EEXIST) partial_->discard();
  }
  if (failure != 0) return file_error(failure, place.given, "create");
  failure = sync_folder(place.folder.number());
  if (failure == 0) return {};
  return file_error(failure, place.path.parent_path(), "sync the directory");
}

Status OutputDirectory::commit_file(const std::string& name) {
  const Place& place = partial_->place();
  const int directory = partial_->descriptor();
  if (directory < 0) return file_error(EBADF, place.given, "commit");
  int failure =
      rename_exclusive(directory, name.c_str(), place.folder.number(), place.name.c_str(), false);
  if (failure == 0 || failure == EEXIST) partial_->discard();
  if (failure != 0) return file_error(failure, place.given, "create");
  failure = sync_folder(place.folder.number());
  if (failure == 0) return {};
  return file_error(failure, place.path.parent_path(), "sync the directory");
}

}  // namespace subbyte
