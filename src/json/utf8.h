#pragma once
// Which text is UTF-8.

#include <cstddef>
#include <optional>
#include <string_view>

namespace subbyte::json {

/// The offset of the first byte that does not belong to well-formed UTF-8 (Unicode 15, table 3-7:
/// no overlong form, no surrogate, nothing above U+10FFFF), nullopt when there is none.
std::optional<std::size_t> find_invalid_utf8(std::string_view text);

}  // namespace subbyte::json
