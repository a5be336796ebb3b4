#include "base/free_space.h"

#include <sys/statvfs.h>

#include <string>

namespace subbyte {

Status check_free_space(const std::filesystem::path& directory, uint64_t bytes) {
  struct statvfs status {};
  // Some file systems do not know their size and say 0.
  if (::statvfs(directory.c_str(), &status) != 0 || status.f_blocks == 0) return {};
  const uint64_t free_bytes = uint64_t{status.f_bavail} * status.f_frsize;
  if (bytes <= free_bytes) return {};
  return Error{"file.no_space", directory.native() + ": expected " + std::to_string(bytes) +
                                    " bytes of free space, which are to be written, found " +
                                    std::to_string(free_bytes)};
}

}  // namespace subbyte
