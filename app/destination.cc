#include "app/destination.h"

#include <algorithm>
#include <utility>

#include "base/file_error.h"

namespace subbyte::app {
namespace {

namespace fs = std::filesystem;

/// The folders above `path` that are not there, the outermost first.
std::vector<fs::path> missing_folders(const fs::path& path) {
  std::vector<fs::path> missing;
  std::error_code failure;
  for (fs::path folder = path.parent_path(); !folder.empty(); folder = folder.parent_path()) {
    const fs::file_type type = fs::symlink_status(folder, failure).type();
    if (type != fs::file_type::not_found || folder == folder.parent_path()) break;
    missing.push_back(folder);
  }
  std::ranges::reverse(missing);
  return missing;
}

}  // namespace

Result<Destination> Destination::prepare(const std::string& path) {
  // "out/" is "out".
  const fs::path target =
      fs::path(path).has_filename() ? fs::path(path) : fs::path(path).parent_path();
  Destination destination;
  for (const fs::path& folder : missing_folders(target)) {
    std::error_code failure;
    fs::create_directory(folder, failure);
    if (failure) return file_error(failure.value(), folder, "create");
    destination.made_.push_back(folder);
  }
  std::error_code failure;
  const bool is_directory = fs::symlink_status(target, failure).type() == fs::file_type::directory;
  // Only an empty one can be removed so.
  if (is_directory && fs::is_empty(target, failure) && !failure && fs::remove(target, failure)) {
    destination.emptied_ = target;
  }
  return destination;
}

Destination::Destination(Destination&& other) noexcept
    : emptied_(std::exchange(other.emptied_, {})), made_(std::exchange(other.made_, {})) {}

Destination::~Destination() {
  std::error_code ignored;
  if (!emptied_.empty()) fs::create_directory(emptied_, ignored);
  for (auto folder = made_.rbegin(); folder != made_.rend(); ++folder) fs::remove(*folder, ignored);
}

void Destination::keep() {
  emptied_.clear();
  made_.clear();
}

}  // namespace subbyte::app
