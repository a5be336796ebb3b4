#pragma once
// What readers of calls of tools share.

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace subbyte {

// Marks inside of calls, which are tokens of their own, by whose they are (tool_calls.cc).
inline constexpr std::string_view kQuoteMark = "<|\"|>";
inline constexpr std::string_view kDeepSeekMark = "<\uff5ctool\u2581sep\uff5c>";
inline constexpr std::string_view kKimiMark = "<|tool_call_argument_begin|>";
inline constexpr std::string_view kArgumentsMark = "[ARGS]";
inline constexpr std::string_view kIdMark = "[CALL_ID]";

inline constexpr std::string_view kCallSpace = " \t\r\n";

/// Without white space at its ends.
inline std::string_view trimmed_call(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kCallSpace), text.size()));
  return text.substr(0, text.find_last_not_of(kCallSpace) + 1);
}

/// Where a text in JSON ends that begins with an object, a list or a text; npos where it does not
/// end. `in_string` says whether it broke off inside a text, where that may go on: JSON has no line
/// breaks in texts.
std::size_t end_of_json(std::string_view text, bool& in_string);

}  // namespace subbyte
