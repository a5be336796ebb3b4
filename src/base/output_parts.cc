#include "base/output_parts.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <ctime>
#include <string>

#include "base/file_error.h"
#include "base/partial_outputs.h"

namespace subbyte::output_parts {
namespace {

namespace fs = std::filesystem;

Error link_error(const fs::path& path) {
  std::error_code ignored;
  return {"file.not_regular",
          path.native() + ": expected a regular file or nothing, found a link to " +
              fs::read_symlink(path, ignored).native() +
              ", which is neither replaced nor followed (name the file itself)"};
}

}  // namespace

Result<fs::path> absolute_target(const fs::path& path) {
  std::error_code failure;
  fs::path target = fs::absolute(path, failure);
  if (!target.has_filename()) target = target.parent_path();
  if (failure || path.empty() || path.native().find('\0') != std::string::npos) {
    return Error{"file.io", std::string(path.c_str()) + ": not a name for an output"};
  }
  return target;
}

fs::path temporary_name(const fs::path& target) {
  uint32_t number = 0;
  if (::getrandom(&number, sizeof number, 0) < 0) number = static_cast<uint32_t>(::clock());
  return target.native() + ".partial-" + std::to_string(::getpid()) + "-" + std::to_string(number);
}

Error registry_error(const fs::path& path) {
  return {"file.io", path.native() + (partial_outputs::stopping()
                                          ? ": not created, the process is being stopped"
                                          : ": too many outputs at a time or too long a name")};
}

Status verify_target(const fs::path& path, bool overwrite) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return {};
  if (!overwrite) return Error{"file.exists", path.native() + ": exists already"};
  if (S_ISLNK(status.st_mode)) return link_error(path);
  // A rename would replace /dev/null as readily as a file.
  if (!S_ISREG(status.st_mode)) {
    return Error{"file.not_regular", path.native() + ": is not a regular file, not overwritten"};
  }
  return {};
}

Status sync_directory(const fs::path& path) {
  const int directory = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return file_error(errno, path, "open the directory");
  const int error_number = ::fsync(directory) == 0 ? 0 : errno;
  ::close(directory);
  // Some file systems cannot sync a directory; they say so with EINVAL.
  if (error_number != 0 && error_number != EINVAL) {
    return file_error(error_number, path, "sync the directory");
  }
  return {};
}

int rename_exclusive(const fs::path& from, const fs::path& to, bool directory) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  // A file system without that flag (NFS). link() is as exclusive but not for directories, where
  // rename() itself refuses to replace one that holds anything.
  if (directory) {
    struct stat status {};
    if (::lstat(to.c_str(), &status) == 0) return EEXIST;
    return ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
  }
  if (::link(from.c_str(), to.c_str()) != 0) return errno;
  ::unlink(from.c_str());
  return 0;
}

SignalBlock::SignalBlock() {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &previous_);
}

SignalBlock::~SignalBlock() {
  ::pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
}

}  // namespace subbyte::output_parts
