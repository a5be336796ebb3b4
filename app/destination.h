#pragma once
// Where a command writes a directory: the folders above it are made, and an empty directory that
// is there already makes way, so that `mkdir out` before the command does no harm.

#include <string>

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

  struct Record;

 private:
  explicit Destination(Record* record) : record_(record) {}

  Record* record_;  // nullptr: nothing is to be undone
};

/// Makes all as it was before, as the destructor does, when nothing that is not finished is left in
/// it: the path of a target that is there whole, nullptr where there is none. For signal handlers.
const char* undo_destinations() noexcept;

}  // namespace subbyte::app
