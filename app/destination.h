#pragma once
// Where a command writes a directory: the folders above it are made, and an empty directory that
// is there already makes way, so that `mkdir out` before the command does no harm.

#include <filesystem>
#include <string>
#include <vector>

#include "base/status.h"

namespace subbyte::app {

class Destination {
 public:
  /// Codes: those of file_error().
  static Result<Destination> prepare(const std::string& path);

  Destination(Destination&& other) noexcept;
  Destination& operator=(Destination&&) = delete;
  /// Makes it as it was before, unless keep() was called.
  ~Destination();

  /// The command has written it.
  void keep();

 private:
  Destination() = default;

  std::filesystem::path emptied_;            // a directory that made way
  std::vector<std::filesystem::path> made_;  // folders, the outermost first
};

}  // namespace subbyte::app
