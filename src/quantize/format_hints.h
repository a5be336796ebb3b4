#pragma once
// What helps who asks for a format by a name that there is not: the names of other software
// (format_hints.def), and what is known of them elsewhere.

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace subbyte {

/// Says who else has a format of that name; empty: nobody.
using ElsewhereFormat = std::string (*)(std::string_view name);

/// The error with that code: what is meant by the name, where that is known, else the names that
/// there are.
Error unknown_format(std::string_view code, std::string_view name,
                     std::span<const std::string> known, ElsewhereFormat elsewhere);

}  // namespace subbyte
