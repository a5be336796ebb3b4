#include "base/output_parts.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "base/file_error.h"
#include "base/partial_outputs.h"

namespace subbyte::output_parts {
namespace fs = std::filesystem;

Error link_error(const fs::path& path) {
  std::error_code ignored;
  return {"file.not_regular",
          path.native() + ": expected a regular file or nothing, found a link to " +
              fs::read_symlink(path, ignored).native() +
              ", which is neither replaced nor followed (name the file itself)"};
}

Result<Target> target_of(const fs::path& given) {
  std::error_code failure;
  fs::path path = fs::absolute(given, failure);
  if (!path.has_filename()) path = path.parent_path();
  if (failure || given.empty() || given.native().find('\0') != std::string::npos) {
    return Error{"file.io", std::string(given.c_str()) + ": not a name for an output"};
  }
  return Target{std::move(path), given};
}

Result<Folder> folder_of(const Target& target) {
  const fs::path parent = target.path.parent_path();
  Folder own = Folder::copy_of(partial_outputs::directory_of(parent.native()));
  if (own) return Result<Folder>(std::move(own));
  return Folder::open(parent, target.given, "create");
}

Error registry_error(const Target& target) {
  return {"file.io",
          target.given.native() + (partial_outputs::stopping()
                                       ? ": not created, the process is being stopped"
                                       : ": too many outputs at a time or too long a name")};
}

Result<Place> look_at_place(const Folder& folder, const Target& target, bool overwrite) {
  struct stat status {};
  const fs::path& path = target.given;
  const fs::path name = target.path.filename();
  if (::fstatat(folder.descriptor(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return Place{};
    return file_error(errno, path, "create");
  }
  if (!overwrite) return Error{"file.exists", path.native() + ": exists already"};
  if (S_ISLNK(status.st_mode)) return link_error(path);
  // A rename would replace /dev/null as readily as a file.
  if (!S_ISREG(status.st_mode)) {
    return Error{"file.not_regular", path.native() + ": is not a regular file, not overwritten"};
  }
  return Place{true, status.st_mode & 0777, status.st_uid, status.st_gid};
}

int unlink_surely(int directory, const char* name, int flags) {
  constexpr int kAttempts = 3;
  int failure = 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    failure = ::unlinkat(directory, name, flags) == 0 || errno == ENOENT ? 0 : errno;
    if (failure == 0 || failure == ENOTEMPTY) break;
  }
  return failure;
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
