#pragma once
// Text from files inside messages for people.

#include <cstddef>
#include <string>
#include <string_view>

namespace subbyte::json {

/// `text` in double quotes, safe to print in one line of a terminal: quotes, backslashes, control
/// characters (also U+0080 to U+009F) and bytes that are not UTF-8 are escaped, and what is longer
/// than `max_bytes` is cut with "...".
std::string quote(std::string_view text, std::size_t max_bytes = 100);

}  // namespace subbyte::json
