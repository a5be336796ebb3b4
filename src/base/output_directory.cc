#include "base/output_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/file_error.h"
#include "base/output_file.h"
#include "base/output_parts.h"
#include "base/partial_outputs.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using leftover::Claim;
using output_parts::registry_error;

constexpr mode_t kPrivate = 0700;

/// What mkdir() would have given a directory in the place of the private one, by what a new file
/// in it gets: umask() cannot be asked without setting it. Who may read may enter.
mode_t usual_mode(const fs::path& directory) {
  const fs::path probe = directory / "resume.mode";
  const int file = ::open(probe.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0) return kPrivate;
  struct stat status {};
  const mode_t mode = ::fstat(file, &status) == 0 ? status.st_mode & 0666 : 0;
  ::close(file);
  ::unlink(probe.c_str());
  return kPrivate | mode | (mode & 0444) >> 2;
}

/// The last steps, after the rename: others may look, and the record goes.
void open_to_others(const fs::path& directory, mode_t mode) {
  struct stat status {};
  const bool found = ::lstat(directory.c_str(), &status) == 0;
  ::chmod(directory.c_str(), mode | (found ? status.st_mode & S_ISGID : 0));
  ::unlink((directory / leftover::kRecordName).c_str());
}

/// Whether `target` is the whole result of a run that was stopped before open_to_others().
bool is_unopened(const fs::path& target, const ResumeRecord& record) {
  const Claim claim = {{.path = target}, leftover::Lock::take(target)};
  return leftover::is_private(claim) &&
         leftover::read_record(claim.lock.file()) == record.what + record.from;
}

}  // namespace

/// False when another process took it for a leftover before it was locked.
Result<bool> OutputDirectory::make_temporary() {
  const fs::path temporary = output_parts::temporary_name(target_);
  if (!partial_outputs::add(temporary.native(), partial_outputs::Kind::kDirectory, kept_)) {
    return registry_error(target_);
  }
  if (::mkdir(temporary.c_str(), kPrivate) != 0) {
    const int error_number = errno;
    partial_outputs::forget(temporary.native());
    if (error_number == EEXIST) return false;
    return file_error(error_number, target_, "create");
  }
  temporary_ = temporary;
  lock_ = leftover::Lock::take(temporary);
  if (!lock_ && lock_.contended()) {
    discard();
    return false;
  }
  return true;
}

Result<OutputDirectory> OutputDirectory::make(const fs::path& target, std::string_view kept) {
  OutputDirectory output;
  output.target_ = target;
  output.kept_ = kept;
  for (int attempt = 0; attempt < 10; ++attempt) {
    SUBBYTE_TRY(const bool made, output.make_temporary());
    if (!made) continue;
    if (partial_outputs::stopping()) return registry_error(target);
    return output;
  }
  return file_error(EEXIST, target, "create a temporary name");
}

Result<OutputDirectory> OutputDirectory::create(const fs::path& path, const Notice& notice) {
  SUBBYTE_TRY(const fs::path target, output_parts::absolute_target(path));
  SUBBYTE_CHECK(output_parts::verify_target(target, false));
  remove_leftovers_of(target, notice);
  return make(target, {});
}

Result<OutputDirectory> OutputDirectory::resume(const fs::path& path, const ResumeRecord& record,
                                                std::string_view kept, const Notice& notice) {
  SUBBYTE_TRY(const fs::path target, output_parts::absolute_target(path));
  if (is_unopened(target, record)) {
    open_to_others(target, usual_mode(target));
    return Error{"file.exists", target.native() +
                                    ": exists already, and is whole: an earlier run "
                                    "of this command made it"};
  }
  SUBBYTE_CHECK(output_parts::verify_target(target, false));
  const std::vector<Claim> claims = leftover::claim_all(target);
  SUBBYTE_TRY(OutputDirectory output, make(target, kept));
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
    std::string line = describe(claim.leftover);
    if (claim.leftover.state == Leftover::State::kAbandoned) {
      const std::string found = leftover::read_record(claim.lock.file());
      const bool is_other = !found.empty() && !found.starts_with(record.what);
      if (is_other) {
        line += ", kept for the command that made it (or for `subbyte clean`)";
      } else {
        if (found == record.what + record.from && is_private(claim)) {
          SUBBYTE_CHECK(take_files(claim, line));
        }
        const Status removed = leftover::remove(claim);
        line += removed.ok() ? ", removed" : ", not removed: " + removed.error().message;
      }
    }
    if (notice) notice(line);
  }
  return {};
}

Status OutputDirectory::take_files(const Claim& claim, std::string& line) {
  const auto names = leftover::finished_files(claim.lock.file(), kept_);
  for (const std::string& name : names) {
    const int failure =
        output_parts::rename_exclusive(claim.leftover.path / name, temporary_ / name, false);
    // Two leftovers may have it: then one of them will do.
    if (failure != 0 && failure != EEXIST) {
      return file_error(failure, claim.leftover.path / name, "rename");
    }
  }
  line += ", gone on with: " + std::to_string(names.size()) + " finished files";
  return {};
}

OutputDirectory::OutputDirectory(OutputDirectory&& other) noexcept
    : target_(std::move(other.target_)),
      temporary_(std::exchange(other.temporary_, {})),
      kept_(std::move(other.kept_)),
      lock_(std::move(other.lock_)) {}

OutputDirectory& OutputDirectory::operator=(OutputDirectory&& other) noexcept {
  if (this == &other) return *this;
  release();
  target_ = std::move(other.target_);
  temporary_ = std::exchange(other.temporary_, {});
  kept_ = std::move(other.kept_);
  lock_ = std::move(other.lock_);
  return *this;
}

OutputDirectory::~OutputDirectory() {
  release();
}

std::size_t OutputDirectory::num_finished() const {
  if (temporary_.empty() || kept_.empty() || !lock_) return 0;
  return leftover::finished_files(lock_.file(), kept_).size();
}

void OutputDirectory::release() {
  if (num_finished() == 0) return discard();
  partial_outputs::forget(temporary_.native());
  temporary_.clear();
  lock_ = {};
}

void OutputDirectory::discard() {
  if (temporary_.empty()) return;
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);
  partial_outputs::forget(temporary_.native());
  temporary_.clear();
  lock_ = {};
}

/// 0 or errno. A kill after the rename leaves what is_unopened() knows.
int OutputDirectory::publish() {
  if (!partial_outputs::begin_commit(temporary_.native())) return EINTR;
  const mode_t mode = usual_mode(temporary_);
  const int failure = output_parts::rename_exclusive(temporary_, target_, true);
  if (failure != 0) return failure;
  open_to_others(target_, mode);
  partial_outputs::forget(temporary_.native());
  temporary_.clear();
  lock_ = {};
  return 0;
}

Status OutputDirectory::commit() {
  if (temporary_.empty()) return file_error(EBADF, target_, "commit");
  SUBBYTE_CHECK(output_parts::sync_directory(temporary_));
  int failure = 0;
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
  if (failure != 0) return file_error(failure, target_, "create");
  return output_parts::sync_directory(target_.parent_path());
}

}  // namespace subbyte
