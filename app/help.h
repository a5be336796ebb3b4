#pragma once
// Help, man page and shell completion: three forms of one text, that of the declarations.

#include <string>
#include <string_view>
#include <vector>

#include "app/arguments.h"

namespace subbyte::app {

struct ProgramHelp {
  CommandHelp program;
  std::vector<CommandHelp> commands;
};

/// A page about something that is no command.
struct Topic {
  std::string_view name;
  std::string_view title;
  std::string_view text;  // lines of at most 80 columns
};
extern const std::vector<Topic> kTopics;

/// The help of the program, in lines of at most `columns`.
std::string program_text(const ProgramHelp& help, int columns);
/// That of a command.
std::string command_text(const ProgramHelp& help, const CommandHelp& command, int columns);

/// A man page in the macros of man(7).
std::string man_page(const ProgramHelp& help);

/// "bash", "zsh" or "fish": what the shell is to read; empty for another one.
std::string completion_script(const ProgramHelp& help, std::string_view shell);

}  // namespace subbyte::app
