#include "base/output_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/file_error.h"
#include "base/output_file.h"
#include "base/output_parts.h"
#include "base/partial_name.h"
#include "base/partial_outputs.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using leftover::Claim;
using output_parts::registry_error;
using output_parts::Target;

constexpr mode_t kPrivate = 0700;

/// What mkdir() would have given a directory in the place of the private one, by what a new file
/// in it gets: umask() cannot be asked without setting it. Who may read may enter.
mode_t usual_mode(int directory) {
  constexpr const char* kProbe = "resume.mode";
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  const int file = ::openat(directory, kProbe, flags, 0666);
  if (file < 0) return kPrivate;
  struct stat status {};
  const mode_t mode = ::fstat(file, &status) == 0 ? status.st_mode & 0666 : 0;
  ::close(file);
  output_parts::unlink_surely(directory, kProbe, 0);
  return kPrivate | mode | (mode & 0444) >> 2;
}

/// The last steps, after the rename: others may look, and the record goes.
void open_to_others(int directory, mode_t mode) {
  struct stat status {};
  const bool found = ::fstat(directory, &status) == 0;
  ::fchmod(directory, mode | (found ? status.st_mode & S_ISGID : 0));
  output_parts::unlink_surely(directory, leftover::kRecordName, 0);
}

/// Whether `target` is the whole result of a run that was stopped before open_to_others(), which
/// then does that.
bool open_unopened(const Folder& parent, const Target& target, const ResumeRecord& record) {
  const Claim claim = {{.path = target.path},
                       leftover::Lock::take(parent, target.path.filename().native())};
  const bool is_unopened = leftover::is_private(claim) &&
                           leftover::read_record(claim.lock.file()) == record.what + record.from;
  if (is_unopened) open_to_others(claim.lock.file(), usual_mode(claim.lock.file()));
  return is_unopened;
}

}  // namespace

/// Whether it is what mkdir() has just made: in a folder where others may rename, another directory
/// of this user may have its name by now.
bool OutputDirectory::is_fresh() const {
  struct stat status {};
  if (!own_ || ::fstat(own_.descriptor(), &status) != 0) return false;
  return status.st_uid == ::geteuid() && (status.st_mode & 077) == 0 &&
         leftover::is_empty(own_.descriptor());
}

/// False when another process took it for a leftover before it was locked.
Result<bool> OutputDirectory::make_temporary() {
  const std::string name = partial_name(target_.path.filename().native());
  const fs::path temporary = target_.path.parent_path() / name;
  const int parent = parent_.descriptor();
  if (!partial_outputs::add(temporary.native(), parent, partial_outputs::Kind::kDirectory, kept_)) {
    return registry_error(target_);
  }
  const int failure = ::mkdirat(parent, name.c_str(), kPrivate) == 0 ? 0 : errno;
  if (failure == 0) own_ = Folder::open_in(parent_, name);
  if (failure != 0 || !is_fresh()) {
    // What is not known to be this one's is removed only where nothing is in it.
    if (failure == 0) output_parts::unlink_surely(parent, name.c_str(), AT_REMOVEDIR);
    partial_outputs::forget(temporary.native());
    own_ = {};
    if (failure == EEXIST || failure == 0) return false;
    return file_error(failure, target_.given, "create");
  }
  temporary_ = temporary;
  partial_outputs::set_directory(temporary.native(), own_.descriptor());
  lock_ = leftover::Lock::take(parent_, name);
  if (!lock_ && lock_.contended()) {
    discard();
    return false;
  }
  return true;
}

Result<OutputDirectory> OutputDirectory::make(const Target& target, Folder parent,
                                              std::string_view kept) {
  OutputDirectory output;
  output.target_ = target;
  output.parent_ = std::move(parent);
  output.kept_ = kept;
  for (int attempt = 0; attempt < 10; ++attempt) {
    SUBBYTE_TRY(const bool made, output.make_temporary());
    if (!made) continue;
    if (partial_outputs::stopping()) return registry_error(target);
    return output;
  }
  return file_error(EEXIST, target.given, "create a temporary name");
}

Result<OutputDirectory> OutputDirectory::create(const fs::path& path, const Notice& notice) {
  SUBBYTE_TRY(const Target target, output_parts::target_of(path));
  SUBBYTE_TRY(Folder parent, output_parts::folder_of(target));
  SUBBYTE_CHECK(output_parts::look_at_place(parent, target, false));
  remove_leftovers_of(parent, target.path, notice);
  return make(target, std::move(parent), {});
}

Status OutputDirectory::check_place(const fs::path& path) {
  SUBBYTE_TRY(const Target target, output_parts::target_of(path));
  SUBBYTE_TRY(const Folder parent, output_parts::folder_of(target));
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(target.path / leftover::kRecordName, ignored))) return {};
  SUBBYTE_CHECK(output_parts::look_at_place(parent, target, false));
  return {};
}

Result<OutputDirectory> OutputDirectory::resume(const fs::path& path, const ResumeRecord& record,
                                                std::string_view kept, const Notice& notice) {
  SUBBYTE_TRY(const Target target, output_parts::target_of(path));
  SUBBYTE_TRY(Folder parent, output_parts::folder_of(target));
  if (open_unopened(parent, target, record)) {
    return Error{"file.exists", target.given.native() +
                                    ": exists already, and is whole: an earlier run "
                                    "of this command made it"};
  }
  SUBBYTE_CHECK(output_parts::look_at_place(parent, target, false));
  const std::vector<Claim> claims =
      leftover::claim_all(parent, target.path.parent_path(), target.path.filename().native());
  SUBBYTE_TRY(OutputDirectory output, make(target, std::move(parent), kept));
  SUBBYTE_TRY(OutputFile file, OutputFile::create(output.path() / leftover::kRecordName, false));
  SUBBYTE_CHECK(file.write(record.what));
  SUBBYTE_CHECK(file.write(record.from));
  SUBBYTE_CHECK(file.commit());
  SUBBYTE_CHECK(output.take_over(claims, record, notice));
  return output;
}

Status OutputDirectory::take_over(const std::vector<Claim>& claims, const ResumeRecord& record,
                                  const Notice& notice) {
  for (const Claim& claim : claims) {
    std::string line = leftover_line(claim.leftover);
    if (claim.leftover.state == Leftover::State::kAbandoned) {
      const std::string found = leftover::read_record(claim.lock.file());
      const bool is_other = !found.empty() && !found.starts_with(record.what);
      if (is_other) {
        line += ", kept for the command that made it (or for `subbyte clean`)";
      } else {
        std::string end = ", removed";
        if (found == record.what + record.from && is_private(claim)) {
          SUBBYTE_TRY(const std::size_t count, take_files(claim));
          line += count == 0 ? "; nothing of it was finished"
                             : "; what is finished is gone on with (" + std::to_string(count) +
                                   (count == 1 ? " file)" : " files)");
          if (count > 0) end = ", the rest is removed";
        }
        const Status removed = leftover::remove(parent_, claim);
        line += removed.ok() ? end : ", not removed: " + removed.error().message;
      }
    }
    if (notice) notice(line);
  }
  return {};
}

/// How many there were.
Result<std::size_t> OutputDirectory::take_files(const Claim& claim) {
  const auto names = leftover::finished_files(claim.lock.file(), kept_);
  const Folder from = Folder::copy_of(claim.lock.file());
  for (const std::string& name : names) {
    const int failure = from.rename_exclusive(name, own_, name, false);
    // Two leftovers may have it: then one of them will do.
    if (failure != 0 && failure != EEXIST) {
      return file_error(failure, claim.leftover.path / name, "rename");
    }
  }
  return names.size();
}

OutputDirectory::OutputDirectory(OutputDirectory&& other) noexcept
    : target_(std::move(other.target_)),
      temporary_(std::exchange(other.temporary_, {})),
      parent_(std::move(other.parent_)),
      own_(std::move(other.own_)),
      kept_(std::move(other.kept_)),
      lock_(std::move(other.lock_)) {}

OutputDirectory& OutputDirectory::operator=(OutputDirectory&& other) noexcept {
  if (this == &other) return *this;
  release();
  target_ = std::move(other.target_);
  temporary_ = std::exchange(other.temporary_, {});
  parent_ = std::move(other.parent_);
  own_ = std::move(other.own_);
  kept_ = std::move(other.kept_);
  lock_ = std::move(other.lock_);
  return *this;
}

OutputDirectory::~OutputDirectory() {
  release();
}

std::size_t OutputDirectory::num_finished() const {
  if (temporary_.empty() || kept_.empty() || !lock_) return 0;
  return leftover::finished_files(own_.descriptor(), kept_).size();
}

void OutputDirectory::release() {
  if (num_finished() == 0) return discard();
  partial_outputs::forget(temporary_.native());
  temporary_.clear();
  lock_ = {};
}

void OutputDirectory::discard() {
  if (temporary_.empty()) return;
  // Again where the system does not say once what is in it.
  constexpr int kAttempts = 3;
  int failure = ENOTEMPTY;
  for (int attempt = 0; failure != 0 && attempt < kAttempts; ++attempt) {
    std::string ignored;
    leftover::unlink_all(own_.descriptor(), ignored);
    failure = output_parts::unlink_surely(parent_.descriptor(), temporary_.filename().c_str(),
                                          AT_REMOVEDIR);
  }
  partial_outputs::forget(temporary_.native());
  temporary_.clear();
  lock_ = {};
}

/// 0 or errno. A kill after the rename leaves what open_unopened() knows.
int OutputDirectory::publish() {
  if (!partial_outputs::begin_commit(temporary_.native())) return EINTR;
  const mode_t mode = usual_mode(own_.descriptor());
  const int failure =
      parent_.rename_exclusive(temporary_.filename(), parent_, target_.path.filename(), true);
  if (failure != 0) return failure;
  open_to_others(own_.descriptor(), mode);
  partial_outputs::forget(temporary_.native());
  temporary_.clear();
  lock_ = {};
  return 0;
}

Status OutputDirectory::commit() {
  if (temporary_.empty()) return file_error(EBADF, target_.given, "commit");
  int failure = own_.sync();
  if (failure != 0) return file_error(failure, temporary_, "sync the directory");
  {
    // A handler that empties the directory while it gets its final name would leave half of it.
    const output_parts::SignalBlock block;
    failure = publish();
    if (failure == ENOTEMPTY) failure = EEXIST;
    // What has the name already is not going to give way to what is finished here.
    if (failure == EEXIST) {
      discard();
    } else if (failure != 0) {
      release();
    }
  }
  if (failure != 0) return file_error(failure, target_.given, "create");
  failure = parent_.sync();
  if (failure == 0) return {};
  return file_error(failure, target_.path.parent_path(), "sync the directory");
}

}  // namespace subbyte
