#pragma once
// Whether there is room for an output before hours are spent on it.

#include <cstdint>
#include <filesystem>

#include "base/status.h"

namespace subbyte {

/// Code file.no_space when the file system of `directory` says that it has less than `bytes` for
/// this user. Quotas are not asked, and another process may take the room: writing can still fail.
Status check_free_space(const std::filesystem::path& directory, uint64_t bytes);

}  // namespace subbyte
