#pragma once
// Text in lines that fit a terminal.

#include <cstddef>
#include <string>
#include <string_view>

namespace subbyte::app {

/// Columns that the text takes on a terminal, without escape sequences for colours: two for wide
/// characters, none for marks.
std::size_t width_of(std::string_view text);

/// Each line of `text` in lines of fewer than `columns`, so that the cursor stays in the last
/// column: broken at blanks, where the rest begins at column `indent`. The first line begins at
/// column `at`. A word that is longer than a line has one of its own, unless it
/// stands at `indent` or before it already.
std::string wrap(std::string_view text, int columns, std::size_t indent = 0, std::size_t at = 0);

}  // namespace subbyte::app
