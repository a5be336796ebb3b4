#pragma once
// What helps who asks a command for a format by a name that it does not have: the names of other
// software (quantize/format_hints.h), and of other commands.

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace subbyte {

/// The command that has a format of that name; empty: none.
std::string command_with(std::string_view name);

/// The error with that code: what is meant by the name, where that is known, else the names that
/// there are.
Error unknown_format(std::string_view code, std::string_view name,
                     std::span<const std::string> known);

}  // namespace subbyte
