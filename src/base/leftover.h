#pragma once
// What processes that did not finish left behind: files and directories with a name of
// base/partial_name.h, by which they are known as this program's. Whoever writes one holds a lock
// on it, so an output without a lock belongs to the dead.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/folder.h"
#include "base/status.h"

namespace subbyte {

/// Takes a line for the user while something is being made.
using Notice = std::function<void(const std::string& line)>;

struct Leftover {
  enum class State : uint8_t {
    kAbandoned,  // made by this user, and no process holds it
    kHeld,       // a process is writing it
    kForeign,    // made by another user
    kStrange,    // of that name, but no output: a link, a device, a directory with directories
  };
  std::filesystem::path path;
  State state = State::kStrange;
  uint64_t bytes = 0;  // of the file, or of the files in the directory; only of abandoned ones
};

/// "<path>: 12.0 MB left by a process that did not finish", and why another one is left alone.
std::string leftover_line(const Leftover& leftover);

/// All of `directory`, or only those of `target_name` in it, in the order of their names. Codes:
/// those of file_error.
Result<std::vector<Leftover>> find_leftovers(const std::filesystem::path& directory,
                                             std::string_view target_name = {});

/// Removes what is still abandoned. Codes: file.in_use when it is not any more, those of
/// file_error.
Status remove_leftover(const std::filesystem::path& path);

/// Removes what earlier runs left of `target` and tells of it, and of what is left alone. Of use
/// before an output of that name is begun.
void remove_leftovers_of(const std::filesystem::path& target, const Notice& notice);

/// The same for the output of that name in a directory that is open.
void remove_leftovers_of(const Folder& folder, const std::filesystem::path& target,
                         const Notice& notice);

namespace leftover {  // for output_file.cc and output_directory.cc

inline constexpr const char* kRecordName = "resume.json";

/// A lock on a file or a directory, held until the process or this object ends.
class Lock {
 public:
  Lock() = default;
  /// Empty when there is no such file or directory, when it is a link, when another process has the
  /// lock, or when the file system has no locks.
  static Lock take(const Folder& folder, const std::string& name);
  Lock(Lock&& other) noexcept;
  Lock& operator=(Lock&& other) noexcept;
  ~Lock();

  explicit operator bool() const { return file_ >= 0; }
  /// Says whether another process has the lock, or had it until it removed or renamed the file.
  bool contended() const { return contended_; }
  int file() const { return file_; }

 private:
  int file_ = -1;
  bool contended_ = false;
};

/// One leftover; what is abandoned stays locked for as long as this lives.
struct Claim {
  Leftover leftover;
  Lock lock;
};

/// Claims those of the output `target` in `folder`, whose path is `directory`.
std::vector<Claim> claim_all(const Folder& folder, const std::filesystem::path& directory,
                             std::string_view target);

/// Says whether nobody but this user could have written into the claimed directory.
bool is_private(const Claim& claim);

/// The record in a directory that is open; empty when there is none.
std::string read_record(int directory);

/// Says whether there is nothing in a directory that is open.
bool is_empty(int directory);

/// Unlinks all that is in a directory that is open and is no directory. 0, or errno of the first
/// one that stays, whose name `failed` gets.
int unlink_all(int directory, std::string& failed);

/// The names of regular files of this user, with this one name only, that end in `kept` and were
/// committed.
std::vector<std::string> finished_files(int directory, std::string_view kept);

/// Removes a claimed leftover of `folder`.
Status remove(const Folder& folder, const Claim& claim);

}  // namespace leftover
}  // namespace subbyte
