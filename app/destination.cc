#include "app/destination.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/file_error.h"
#include "base/signal_block.h"

namespace subbyte::app {

/// What was done for one target. A signal handler may read it at any moment, so that it is never
/// freed, and its texts do not change.
struct Destination::Record {
  std::string target;
  std::vector<std::string> missing;  // folders above it, the outermost first
  std::atomic<std::size_t> made{0};  // how many of them were made
  std::atomic<bool> emptied{false};  // whether an empty directory made way
  std::atomic<bool> undone{false};
  std::atomic<bool> was_there{true};  // what the command will not write over
  Record* before = nullptr;
};

namespace {

namespace fs = std::filesystem;

constinit std::atomic<Destination::Record*> last_record{nullptr};

/// The folders above `path` that are not there, the outermost first.
std::vector<std::string> missing_folders(const fs::path& path) {
  std::vector<std::string> missing;
  std::error_code failure;
  for (fs::path folder = path.parent_path(); !folder.empty(); folder = folder.parent_path()) {
    const fs::file_type type = fs::symlink_status(folder, failure).type();
    if (type != fs::file_type::not_found || folder == folder.parent_path()) break;
    missing.push_back(folder.native());
  }
  std::ranges::reverse(missing);
  return missing;
}

/// Once, whoever comes first. What is not empty stays.
void undo(Destination::Record& record) noexcept {
  if (record.undone.exchange(true)) return;
  if (record.emptied) ::mkdir(record.target.c_str(), 0777);
  for (std::size_t i = record.made; i > 0; --i) ::rmdir(record.missing[i - 1].c_str());
}

}  // namespace

Result<Destination> Destination::prepare(const std::string& path) {
  // "out/" is "out".
  const fs::path target =
      fs::path(path).has_filename() ? fs::path(path) : fs::path(path).parent_path();
  auto* const record = new Record{.target = target.native(), .missing = missing_folders(target)};
  record->before = last_record;
  last_record = record;
  Destination destination(record);
  const SignalBlock block;  // a signal finds all that was made counted
  for (const std::string& folder : record->missing) {
    const bool is_made = ::mkdir(folder.c_str(), 0777) == 0;
    // Another process may make it first.
    if (!is_made && errno != EEXIST) return file_error(errno, folder, "create");
    ++record->made;
  }
  std::error_code failure;
  const fs::file_type type = fs::symlink_status(target, failure).type();
  // Only an empty one can be removed so.
  record->emptied = type == fs::file_type::directory && ::rmdir(record->target.c_str()) == 0;
  record->was_there = type != fs::file_type::not_found && !record->emptied;
  return destination;
}

Destination::Destination(Destination&& other) noexcept
    : record_(std::exchange(other.record_, nullptr)) {}

Destination::~Destination() {
  if (record_ != nullptr) undo(*record_);
}

void Destination::keep() {
  record_->undone = true;
  record_ = nullptr;
}

const char* undo_destinations() noexcept {
  const char* whole = nullptr;
  for (Destination::Record* record = last_record; record != nullptr; record = record->before) {
    struct stat status {};
    // Of a directory that is not empty nothing is undone, and an empty one made way before.
    const bool is_there = ::lstat(record->target.c_str(), &status) == 0;
    if (is_there && !record->was_there) whole = record->target.c_str();
    undo(*record);
  }
  return whole;
}

}  // namespace subbyte::app
