#pragma once
// What OutputFile and OutputDirectory share: places and names. Internal to them.

#include <csignal>
#include <cstdint>
#include <filesystem>

#include "base/folder.h"
#include "base/status.h"

namespace subbyte::output_parts {

/// The place of an output: absolute, so that neither the registry nor the rename depends on the
/// current directory, without the slash at the end of "out/"; and as it was given, for messages.
struct Target {
  std::filesystem::path path;
  std::filesystem::path given;
};

Result<Target> target_of(const std::filesystem::path& given);

/// The directory that an output of that absolute path lies in. One that this process is making is
/// known by its descriptor, so that a link that has taken its name leads nowhere.
Result<Folder> folder_of(const Target& target);

/// Why partial_outputs::add() said no.
Error registry_error(const Target& target);

/// State of the place that an output will take.
struct Place {
  bool is_taken = false;  // by a regular file that it will replace
  uint32_t mode = 0;      // of that file
  uint32_t user = 0;
  uint32_t group = 0;
};

/// Checks whether an output may take the place of what is at `target`, in `folder`: of nothing, or
/// with `overwrite` of a regular file. A link is never replaced, nor written through: what it names
/// may be anything.
Result<Place> look_at_place(const Folder& folder, const Target& target, bool overwrite);

/// Error for a link in the place of an output. Code file.not_regular.
Error link_error(const std::filesystem::path& path);

/// Keeps signal handlers of this thread out of a few lines.
class SignalBlock {
 public:
  SignalBlock();
  ~SignalBlock();
  SignalBlock(const SignalBlock&) = delete;
  SignalBlock& operator=(const SignalBlock&) = delete;

 private:
  sigset_t previous_;
};

/// Unlinks what is in an open directory, again where the system fails once. 0 when it is gone, else
/// errno.
int unlink_surely(int directory, const char* name, int flags);

}  // namespace subbyte::output_parts
