#pragma once
// What processes that did not finish left behind: files and directories with a name of
// base/partial_name.h, by which they are known as this program's. Whoever writes one holds a lock
// on it, so an output without a lock belongs to the dead.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.h"
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

/// All of `directory`, in the order of their names. Codes: those of file_error.
Result<std::vector<Leftover>> find_leftovers(const std::filesystem::path& directory);

/// Removes what is still abandoned. Codes: file.in_use when it is not any more, those of
/// file_error.
Status remove_leftover(const std::filesystem::path& path);

/// Removes what earlier runs left of `target` and tells of it, and of what is left alone. Of use
/// before an output of that name is begun.
void remove_leftovers_of(const std::filesystem::path& target, const Notice& notice);

/// By what an output that was not finished is known again. Both parts are text of the caller's own.
struct ResumeRecord {
  std::string what;  // is being made, and how
  std::string from;  // which state of which sources

  /// The file of a directory that has it until the directory is whole.
  static constexpr const char* kName = "resume.json";
};

namespace leftover {  // for output_directory.cc

/// The names of leftovers in the open directory `folder`, of the output `target` if that is not
/// empty, in order.
std::vector<std::string> names_in(int folder, std::string_view target);

/// The output that goes on with finished files of leftovers.
struct Heir {
  int directory;  // open
  ResumeRecord record;
  std::string kept;
};

/// Removes those of `names` in `folder`, which is `directory`, and tells of it. One with a record
/// is kept for the command that made it. Where that is `heir`, the finished files of a directory
/// that nobody else could write into become its own first; one with the same `what` and another
/// `from` is removed.
Status settle(int folder, const std::filesystem::path& directory,
              const std::vector<std::string>& names, const Notice& notice,
              const std::optional<Heir>& heir = std::nullopt);

/// The directory of that name in `folder`, locked, where it has `record`, belongs to this user, and
/// nobody else could have written into it; else nothing.
Descriptor claim_recorded(int folder, const std::string& name, const ResumeRecord& record);

}  // namespace leftover
}  // namespace subbyte
