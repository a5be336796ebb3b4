#pragma once
// What helps who asks a command for a format by a name that it does not have: the names of other
// software (quantize/format_hints.h), and of other commands.

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "checkpoints/quantize_formats.h"

namespace subbyte {

/// The command that has a format of that name; empty: none.
std::string command_with(std::string_view name);

/// The error with that code: what is meant by the name, where that is known, else the names that
/// there are.
Error unknown_format(std::string_view code, std::string_view name,
                     std::span<const std::string> known);

/// choose_quantize_format() with the names of all commands in errors.
inline Result<const QuantizeFormat*> choose_quantize_format(std::string_view name,
                                                            std::optional<double> bits) {
  return choose_quantize_format(name, bits, command_with);
}

}  // namespace subbyte
