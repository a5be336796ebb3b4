#pragma once
// What the terminals that the program writes to can do: progress bars, colours and the width of
// screens are made for them.

#include <cstdint>
#include <cstdio>

namespace subbyte::app {

enum class Colours : uint8_t { kAuto, kAlways, kNever };

/// Says what has_colours() answers from now on; kAuto: what the terminal can do.
void choose_colours(Colours colours);

/// Says whether colours may be written there. kAuto: it is a terminal, TERM is neither empty nor
/// "dumb", and NO_COLOR is not set or empty.
bool has_colours(std::FILE* to);

/// Says whether it is a terminal of the user, which that of a rank of mpirun is not.
bool is_terminal(std::FILE* to);

/// Says whether the cursor of the error stream can go back in a line: a terminal that is not dumb.
bool moves_cursor();

/// Columns of a line there, at least 20: COLUMNS, else those of the terminal, else 80.
int columns_of(std::FILE* to);

}  // namespace subbyte::app
