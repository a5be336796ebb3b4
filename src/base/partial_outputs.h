#pragma once
// The temporary outputs of this process, where a signal handler can find them. Internal to
// output_file.cc and output_directory.cc; remove_partial_outputs() is declared in
// output_directory.h.
//
// A fixed table, because a handler may neither allocate nor lock. The state of a slot says who may
// touch its path:
//
//   free -> filling -> file ------------------------> free
//                   -> directory -> committing -----> free
//                                -> removing
//
// A path never changes while its slot is `file` or `directory`, and no slot is filled once
// remove_partial_outputs() has begun.

#include <string_view>

namespace subbyte::partial_outputs {

enum class Kind { kFile, kDirectory };

/// Call before the file or directory is made, so that no moment is uncovered. It will be in the
/// directory with the descriptor `folder`, which stays open until forget(). False when the table is
/// full, the path is too long, or the process is being stopped. A directory with finished files
/// that end in `kept` stays when the process is stopped, if that is not empty.
bool add(std::string_view path, int folder, Kind kind, std::string_view kept = {});

/// The directory is there and open, until forget().
void set_directory(std::string_view path, int directory);
/// Its descriptor; -1 when `path` is none of them.
int directory_of(std::string_view path);

/// Says whether remove_partial_outputs() has run. Who made a file after add() asks, and removes it.
bool stopping();

/// False when a signal handler is already removing the directory. After true, the handler of
/// another thread waits for forget(); this thread must not be interrupted in between.
bool begin_commit(std::string_view path);

/// The output is at its final name, or gone.
void forget(std::string_view path);

}  // namespace subbyte::partial_outputs
