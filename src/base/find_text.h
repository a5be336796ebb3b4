#pragma once
// Searching in texts of strangers for patterns of strangers.

#include <cstring>
#include <string_view>

namespace subbyte {

/// As text.find(pattern, from), in time proportional to both: that one takes their product for a
/// long pattern whose end alone differs. `pattern` is not empty, `from` within the text.
inline std::size_t find_text(std::string_view text, std::string_view pattern,
                             std::size_t from = 0) {
  if (text.size() - from < pattern.size()) return std::string_view::npos;
  const char* const begin = text.data() + from;
  const void* const found = ::memmem(begin, text.size() - from, pattern.data(), pattern.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

}  // namespace subbyte
