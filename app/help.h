#pragma once
// Help, man page and shell completion: three forms of one text, that of the declarations.

#include <string>
#include <string_view>
#include <vector>

#include "app/arguments.h"

namespace subbyte::app {

/// The pages of `subbyte help`.
extern const std::vector<Topic> kTopics;

/// The help of an option, with the values that it takes and its default.
std::string help_of(const Option& option);

/// The help of the program, in lines of at most `columns`.
std::string program_text(const Program& program, int columns);
/// That of a command.
std::string command_text(const Program& program, const CommandInfo& command, int columns);

/// A man page in the macros of man(7).
std::string man_page(const Program& program);

/// "bash", "zsh" or "fish": what the shell is to read; empty for another one.
std::string completion_script(const Program& program, std::string_view shell);

}  // namespace subbyte::app
