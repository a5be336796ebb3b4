#include "base/model_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <string>
#include <utility>

#include "base/cache_directory.h"
#include "base/file_error.h"
#include "base/folder.h"
#include "base/link_policy.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

constinit std::atomic<bool> follows_all{false};

/// What `directory` is a snapshot of, or lies in one; empty if it is in none.
fs::path entry_of(const fs::path& directory) {
  for (fs::path at = directory; at.has_relative_path(); at = at.parent_path()) {
    const fs::path entry = at.parent_path();
    if (at.filename() == "snapshots" && entry.filename().native().starts_with("models--")) {
      return entry;
    }
  }
  return {};
}

/// The entry of the user's own cache that `directory` belongs to by its name, whatever of it is a
/// link; empty if it lies elsewhere.
fs::path own_entry_of(const fs::path& directory) {
  std::error_code failure;
  const fs::path cache = fs::absolute(cache_directory(), failure).lexically_normal();
  const fs::path inside =
      fs::absolute(directory, failure).lexically_normal().lexically_relative(cache);
  if (failure || inside.empty() || inside.begin()->native() == "..") return {};
  return inside.begin()->native().starts_with("models--") ? cache / *inside.begin() : fs::path();
}

/// Where a link leads that this user made, or root; empty where there is none of theirs. Others may
/// write where a cache is, too.
fs::path trusted_link(int folder, const char* name) {
  const Descriptor link(::openat(folder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!link) return {};
  struct stat status {};
  std::string target(PATH_MAX, '\0');
  const bool trusted = ::fstat(link.number(), &status) == 0 && S_ISLNK(status.st_mode) &&
                       (status.st_uid == ::geteuid() || status.st_uid == 0);
  const ssize_t size = trusted ? ::readlinkat(link.number(), "", target.data(), target.size()) : -1;
  target.resize(size < 0 ? 0 : static_cast<std::size_t>(size));
  return target;
}

/// A directory that is open, by its name without links.
struct Blobs {
  Descriptor folder;
  fs::path path;
};

/// The blobs of an entry. Step by step: others may write where the cache is, and put a link in the
/// place of a directory at any moment.
Blobs open_blobs(const fs::path& entry) {
  const Descriptor cache = open_folder(entry.parent_path());
  const Descriptor folder = open_folder_in(cache.number(), entry.filename().c_str());
  return {open_folder_in(folder.number(), "blobs"), entry / "blobs"};
}

/// Those of an entry of the user's own cache: it may be a link, and so may they, as people have
/// them on another disk.
Blobs open_own_blobs(const fs::path& entry) {
  const Descriptor folder = open_folder(entry);
  if (!folder) return {};
  std::error_code failure;
  const fs::path link = trusted_link(folder.number(), "blobs");
  const fs::path path = fs::canonical(link.empty() ? entry / "blobs" : entry / link, failure);
  if (failure) return {};
  return {link.empty() ? open_folder_in(folder.number(), "blobs") : open_folder(path), path};
}

Error outside(const fs::path& path, const fs::path& target) {
  return {"file.link_outside", path.native() +
                                   ": expected a file or a link into the blobs of the same cache "
                                   "entry, found a link to " +
                                   target.native()};
}

Result<MappedFile> open_link(const fs::path& path) {
  std::error_code failure;
  const fs::path parent = path.parent_path();
  const fs::path home = fs::canonical(parent.empty() ? "." : parent, failure);
  const fs::path target = failure ? fs::path() : fs::canonical(path, failure);
  if (failure) {
    Result<MappedFile> file = MappedFile::open(path);  // says what is wrong: no file, or a loop
    return file.ok() ? outside(path, fs::read_symlink(path, failure)) : std::move(file);
  }
  const fs::path own_entry = own_entry_of(parent.empty() ? "." : parent);
  const fs::path entry = own_entry.empty() ? entry_of(home) : own_entry;
  if (entry.empty()) return outside(path, target);
  const Blobs blobs = own_entry.empty() ? open_blobs(entry) : open_own_blobs(entry);
  if (!blobs.folder || target.parent_path() != blobs.path) return outside(path, target);
  // The blob itself, so that a link that is changed meanwhile leads nowhere else.
  SUBBYTE_TRY(MappedFile file,
              MappedFile::open_in(blobs.folder.number(), target.filename(), target));
  file.set_path(path);
  return file;
}

}  // namespace

Result<MappedFile> open_model_file(const fs::path& path, uint64_t max_bytes) {
  Result<MappedFile> file =
      follows_all ? MappedFile::open(path) : MappedFile::open(path, Links::kRefuse);
  if (!file.ok() && file.error().code == "file.link") file = open_link(path);
  if (file.ok() && file->bytes().size() > max_bytes) {
    return Error{"file.too_large", path.native() + ": expected at most " +
                                       std::to_string(max_bytes) + " bytes, found " +
                                       std::to_string(file->bytes().size())};
  }
  return file;
}

void follow_all_links() {
  follows_all = true;
}

bool is_there(const fs::path& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 ||
         (errno != ENOENT && errno != ENOTDIR && errno != ELOOP);
}

Result<bool> is_folder(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) return S_ISDIR(status.st_mode);
  if (errno == ENOENT || errno == ENOTDIR) return false;
  return file_error(errno, path, "open");
}

}  // namespace subbyte
