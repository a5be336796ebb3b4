#pragma once
// One rule for the exit code of an error: 2 where what was typed is wrong (a command, an option, a
// value of one, an environment variable; by itself or for the model that it was typed for), 1 where
// a file, a model or the machine is.

#include <string_view>

namespace subbyte::app {

/// Says whether an error with this code is about what was typed.
bool is_usage_error(std::string_view code);

}  // namespace subbyte::app
