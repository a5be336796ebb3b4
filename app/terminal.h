#pragma once
// What the terminal at the error stream can do: progress bars, colours and the width of help are
// made for it.

namespace subbyte::app {

/// Whether colours may be written to it: it is a terminal, TERM is neither empty nor "dumb", and
/// NO_COLOR is not set or empty.
bool has_colours();

/// Whether the cursor can go back in a line: a terminal that is not dumb.
bool moves_cursor();

/// Columns of a line, at least 20; 80 where there is no terminal.
int terminal_columns();

}  // namespace subbyte::app
