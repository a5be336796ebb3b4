#pragma once
// Lines that a person types on a terminal where libedit does not run: it is not installed, or the
// terminal is a dumb one. What the terminal itself collects as a line ends at 4,095 bytes, the rest
// of it is lost.

#include <optional>
#include <string>

namespace subbyte::app {

/// The next line of standard input, which is a terminal, of any length; none at the end. `prompt`
/// is written to the error stream. The keys that erase, end the input and send signals are those of
/// the terminal (`stty -a`); other control characters than a tab are left out.
std::optional<std::string> read_plain_line(const std::string& prompt);

}  // namespace subbyte::app
