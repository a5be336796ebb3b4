#pragma once
// The reason that the JSON library gives for a refusal, fit for a message of ours.

#include <string_view>

namespace subbyte::json {

/// "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ...; last read:
/// '...'" without the bracket and without what was read, which may be any bytes of any length.
inline std::string_view parser_problem(std::string_view what) {
  if (const auto end = what.find("] "); end != std::string_view::npos) what.remove_prefix(end + 2);
  return what.substr(0, what.find("; last read")).substr(0, 200);
}

}  // namespace subbyte::json
