#pragma once
// Text from files, arguments and the environment inside messages, lists and pages for people. All
// of it goes through here, so that it stays in its line and tells a terminal nothing:
// tools/check_messages.py finds what goes around.

#include <cstddef>
#include <string>
#include <string_view>

namespace subbyte {

/// `text` in one printable line. Escaped are control characters (U+0000 to U+001F, U+007F to
/// U+009F), separators of lines, what turns the direction of text or cannot be seen (bidi controls,
/// zero width, tags), and bytes that are not UTF-8: "\u000a", "\U000e0041", "\xff". Everything else
/// is as it was, so that printable(printable(x)) is printable(x).
std::string printable(std::string_view text);

/// A value: the same in double quotes, with quotes and backslashes escaped, too; what is longer
/// than `max_bytes` is cut with "...".
std::string quote(std::string_view text, std::size_t max_bytes = 100);

/// A name of a tensor, a module or a file: the same, with the room that names take.
std::string quote_name(std::string_view name, std::size_t max_bytes = 256);

}  // namespace subbyte
