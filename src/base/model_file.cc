#include "base/model_file.h"

#include <sys/stat.h>

#include <string>
#include <utility>

namespace subbyte {
namespace {

namespace fs = std::filesystem;

/// The cache entry that `directory` is a snapshot of, or lies in one; empty if it is in none. It is
/// canonical.
fs::path entry_of(const fs::path& directory) {
  for (fs::path at = directory; at.has_relative_path(); at = at.parent_path()) {
    const fs::path entry = at.parent_path();
    if (at.filename() == "snapshots" && entry.filename().native().starts_with("models--")) {
      return entry;
    }
  }
  return {};
}

/// The blobs of an entry. Step by step: others may write where the cache is, and put a link in the
/// place of a directory at any moment.
Folder open_blobs(const fs::path& entry) {
  const auto cache = Folder::open(entry.parent_path());
  if (!cache.ok()) return {};
  return Folder::open_in(Folder::open_in(*cache, entry.filename()), "blobs");
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
  const fs::path entry = entry_of(home);
  if (entry.empty() || target.parent_path() != entry / "blobs") return outside(path, target);
  // The blob itself, so that a link that is changed meanwhile leads nowhere else.
  const Folder blobs = open_blobs(entry);
  if (!blobs) return outside(path, target);
  SUBBYTE_TRY(MappedFile file, MappedFile::open_in(blobs, target.filename(), target));
  file.set_path(path);
  return file;
}

}  // namespace

Result<MappedFile> open_model_file(const fs::path& path, uint64_t max_bytes) {
  Result<MappedFile> file = MappedFile::open(path, Links::kRefuse);
  if (!file.ok() && file.error().code == "file.link") file = open_link(path);
  if (file.ok() && file->bytes().size() > max_bytes) {
    return Error{"file.too_large", path.native() + ": expected at most " +
                                       std::to_string(max_bytes) + " bytes, found " +
                                       std::to_string(file->bytes().size())};
  }
  return file;
}

bool is_there(const fs::path& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0;
}

}  // namespace subbyte
