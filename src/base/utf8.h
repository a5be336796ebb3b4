#pragma once
// Which text is UTF-8.

#include <cstddef>
#include <optional>
#include <string_view>

namespace subbyte {

/// The length of the well-formed sequence (Unicode 15, table 3-7: no overlong form, no surrogate,
/// nothing above U+10FFFF) that `text`, not empty, begins with: 1 to 4, or 0 when there is none.
std::size_t utf8_sequence_length(std::string_view text);

/// The offset of the first byte that does not belong to well-formed UTF-8, nullopt when there
/// is none.
std::optional<std::size_t> find_invalid_utf8(std::string_view text);

}  // namespace subbyte
