#pragma once
// What OutputFile and OutputDirectory share: names, renames, syncs. Internal to them.

#include <csignal>
#include <filesystem>

#include "base/status.h"

namespace subbyte::output_parts {

/// Absolute, so that neither the registry nor the rename depends on the current directory; without
/// the slash at the end of "out/".
Result<std::filesystem::path> absolute_target(const std::filesystem::path& path);

/// `<target>.partial-<pid>-<n>`. Random n: two containers that share a directory may share pids.
std::filesystem::path temporary_name(const std::filesystem::path& target);

/// Why partial_outputs::add() said no.
Error registry_error(const std::filesystem::path& path);

/// Whether an output may take the place of what is at `path`: of nothing, or with `overwrite` of a
/// regular file. A link is never replaced, nor written through: what it names may be anything.
Status verify_target(const std::filesystem::path& path, bool overwrite);

Status sync_directory(const std::filesystem::path& path);

/// Renames unless `to` exists. 0 or errno.
int rename_exclusive(const std::filesystem::path& from, const std::filesystem::path& to,
                     bool directory);

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

}  // namespace subbyte::output_parts
