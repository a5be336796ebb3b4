#pragma once
// What helps who asks for a format by a name that a command does not have: the names of other
// software, and of other commands (format_hints.def).

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace subbyte {

/// The error with that code: what is meant by the name, where that is known, else the names that
/// there are.
Error unknown_format(std::string_view code, std::string_view name,
                     std::span<const std::string> known);

}  // namespace subbyte
