#pragma once
// What a function asks of its operands, in the caller's words for them.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace subbyte::device {

/// Code of errors about an operand of the caller's, whom each interface calls by a prefix of its
/// own (c.argument, torch.argument).
inline constexpr std::string_view kArgument = "argument";

/// "NAME: expected EXPECTED, found FOUND", code kArgument.
inline Error refuse(std::string_view name, std::string_view expected, std::string_view found) {
  std::string line(name);
  line.append(": expected ").append(expected).append(", found ").append(found);
  return {kArgument, line};
}
inline Error refuse(std::string_view name, std::string_view expected, int64_t found) {
  return refuse(name, expected, std::to_string(found));
}

}  // namespace subbyte::device
