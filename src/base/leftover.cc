#include "base/leftover.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <utility>

#include "base/file_error.h"
#include "base/folder.h"
#include "base/partial.h"
#include "base/partial_name.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using State = Leftover::State;

constexpr int kOpen = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;

/// A leftover; what is abandoned stays locked for as long as this lives.
struct Claim {
  Leftover leftover;
  Descriptor held;
};

/// Bytes of the files in an open directory; nullopt when something else is in it, which no output
/// has.
std::optional<uint64_t> bytes_in(int directory) {
  std::optional<uint64_t> bytes = 0;
  const int failure = for_each_name(directory, [&](const char* name) {
    struct stat status {};
    if (::fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) != 0) return;
    if (!S_ISREG(status.st_mode)) bytes = std::nullopt;
    if (bytes) *bytes += static_cast<uint64_t>(status.st_size);
  });
  return failure == 0 ? bytes : std::nullopt;
}

/// What may be made of what is at `status`, unless a process holds it.
State state_of(const struct stat& status) {
  if (!S_ISDIR(status.st_mode) && !S_ISREG(status.st_mode)) return State::kStrange;
  return status.st_uid == ::geteuid() ? State::kAbandoned : State::kForeign;
}

Claim claim(int folder, const fs::path& path) {
  const std::string name = path.filename();
  Claim claim = {{.path = path}, {}};
  Leftover& leftover = claim.leftover;
  struct stat status {};
  const int found = ::fstatat(folder, name.c_str(), &status, AT_SYMLINK_NOFOLLOW);
  if (found == 0) leftover.state = state_of(status);
  if (found == 0 && leftover.state != State::kAbandoned) return claim;
  leftover.state = State::kHeld;  // also what has just got its final name
  Descriptor file(::openat(folder, name.c_str(), kOpen));
  if (!file || lock(folder, name, file.number()) != Lock::kTaken) return claim;
  // Of what is locked, whatever had the name before.
  if (::fstat(file.number(), &status) != 0) return claim;
  leftover.state = state_of(status);
  std::optional<uint64_t> bytes = static_cast<uint64_t>(status.st_size);
  if (S_ISDIR(status.st_mode)) bytes = bytes_in(file.number());
  if (!bytes && leftover.state == State::kAbandoned) leftover.state = State::kStrange;
  leftover.bytes = bytes.value_or(0);
  claim.held = std::move(file);
  return claim;
}

/// The record in a directory that is open; empty when there is none, "?" when it cannot be read or
/// is longer than any: then it is none that a command of this program wrote.
std::string read_record(int directory) {
  constexpr std::size_t kMaxRecordBytes = 16 << 20;
  const Descriptor file(::openat(directory, ResumeRecord::kName, kOpen));
  if (!file) return errno == ENOENT || errno == ENOTDIR ? "" : "?";
  std::string text;
  char part[4096];
  ssize_t count = 1;
  while (count > 0) {
    do {
      count = ::read(file.number(), part, sizeof part);
    } while (count < 0 && errno == EINTR);
    if (count > 0) text.append(part, static_cast<std::size_t>(count));
    if (text.size() > kMaxRecordBytes) return "?";
  }
  return count == 0 ? text : "?";
}

bool is_private(int file) {
  struct stat status {};
  return ::fstat(file, &status) == 0 && status.st_uid == ::geteuid() && (status.st_mode & 077) == 0;
}

Status remove(int folder, const Claim& claim) {
  const fs::path& path = claim.leftover.path;
  const std::string name = path.filename();
  struct stat status {};
  if (::fstat(claim.held.number(), &status) != 0) return file_error(errno, path, "look at");
  if (!names(folder, name.c_str(), claim.held.number())) return file_error(ENOENT, path, "remove");
  std::string file;
  const int failure = S_ISDIR(status.st_mode)
                          ? remove_directory(folder, name.c_str(), claim.held.number(), &file)
                          : unlink_surely(folder, name.c_str(), 0);
  if (failure == 0) return {};
  return file_error(failure, file.empty() ? path : path / file, "remove");
}

/// Moves the finished files of a claimed directory. How many there were.
Result<std::size_t> take_files(const Claim& claim, const leftover::Heir& heir) {
  const int directory = claim.held.number();
  std::vector<std::string> names;
  for_each_name(directory, [&](const char* name) {
    if (is_finished(directory, name, heir.kept)) names.emplace_back(name);
  });
  for (const std::string& name : names) {
    const int failure =
        rename_exclusive(directory, name.c_str(), heir.directory, name.c_str(), false);
    // Two leftovers may have it: then one of them will do.
    if (failure != 0 && failure != EEXIST) {
      return file_error(failure, claim.leftover.path / name, "rename");
    }
  }
  return names.size();
}

/// What becomes of an abandoned one, as the end of a line.
Result<std::string> settle_claim(int folder, const Claim& claim,
                                 const std::optional<leftover::Heir>& heir) {
  const std::string record = read_record(claim.held.number());
  if (!record.empty() && (!heir || !record.starts_with(heir->record.what))) {
    return std::string(", kept for the command that made it (or for `subbyte clean`)");
  }
  std::string line;
  std::string end = ", removed";
  if (heir && record == heir->record.what + heir->record.from && is_private(claim.held.number())) {
    SUBBYTE_TRY(const std::size_t count, take_files(claim, *heir));
    line = count == 0 ? "; nothing of it was finished"
                      : "; what is finished is gone on with (" + std::to_string(count) +
                            (count == 1 ? " file)" : " files)");
    if (count > 0) end = ", the rest is removed";
  }
  const Status removed = remove(folder, claim);
  return line + (removed.ok() ? end : ", not removed: " + removed.error().message);
}

}  // namespace

std::string leftover_line(const Leftover& leftover) {
  const std::string& path = leftover.path.native();
  char megabytes[32];
  switch (leftover.state) {
    case State::kAbandoned:
      std::snprintf(megabytes, sizeof megabytes, "%.1f", static_cast<double>(leftover.bytes) / 1e6);
      return path + ": " + megabytes + " MB left by a process that did not finish";
    case State::kHeld:
      return path + ": left alone, a process is writing it";
    case State::kForeign:
      return path + ": left alone, another user made it";
    case State::kStrange:
      break;
  }
  return path + ": left alone, it is not what this program makes";
}

Result<std::vector<Leftover>> find_leftovers(const fs::path& directory) {
  const Descriptor folder = open_folder(directory);
  if (!folder) return file_error(errno, directory, "open the directory");
  std::vector<Leftover> found;
  for (const std::string& name : leftover::names_in(folder.number(), {})) {
    found.push_back(claim(folder.number(), directory / name).leftover);
  }
  return found;
}

Status remove_leftover(const fs::path& path) {
  const Descriptor folder = open_folder(path.parent_path());
  if (!folder) return file_error(errno, path.parent_path(), "open the directory");
  Claim claimed = claim(folder.number(), path);
  const bool is_ours = target_of_partial(path.filename().native()).has_value();
  if (!is_ours && claimed.leftover.state == State::kAbandoned) {
    claimed.leftover.state = State::kStrange;
  }
  if (claimed.leftover.state == State::kAbandoned) return remove(folder.number(), claimed);
  return Error{"file.in_use", leftover_line(claimed.leftover)};
}

void remove_leftovers_of(const fs::path& target, const Notice& notice) {
  const Descriptor folder = open_folder(target.parent_path());
  if (!folder) return;  // the output will say why
  const auto names = leftover::names_in(folder.number(), target.filename().native());
  static_cast<void>(leftover::settle(folder.number(), target.parent_path(), names, notice));
}

namespace leftover {

std::vector<std::string> names_in(int folder, std::string_view target) {
  std::vector<std::string> names;
  for_each_name(folder, [&](const char* name) {
    const auto found = target_of_partial(name);
    if (found && (target.empty() || *found == target)) names.emplace_back(name);
  });
  std::ranges::sort(names);
  return names;
}

Status settle(int folder, const fs::path& directory, const std::vector<std::string>& names,
              const Notice& notice, const std::optional<Heir>& heir) {
  for (const std::string& name : names) {
    const Claim claimed = claim(folder, directory / name);
    std::string line = leftover_line(claimed.leftover);
    if (claimed.leftover.state == State::kAbandoned) {
      SUBBYTE_TRY(const std::string end, settle_claim(folder, claimed, heir));
      line += end;
    }
    if (notice) notice(line);
  }
  return {};
}

Descriptor claim_recorded(int folder, const std::string& name, const ResumeRecord& record) {
  Descriptor directory(::openat(folder, name.c_str(), kOpen));
  const bool is_held = directory && lock(folder, name, directory.number()) == Lock::kTaken;
  const bool is_known = is_held && is_private(directory.number()) &&
                        read_record(directory.number()) == record.what + record.from;
  return is_known ? std::move(directory) : Descriptor();
}

}  // namespace leftover
}  // namespace subbyte
