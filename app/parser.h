#pragma once
// Reads a command line by the declarations of the commands (arguments.h):
//
//   subbyte [OPTION ...] COMMAND [OPTION | VALUE] ... [-- VALUE ...]
//
// --name VALUE, --name=VALUE, -x VALUE, -x=VALUE; -n5 where -n takes a whole number. "_" in a long
// name is "-". An option that is given twice has the last value. Names that other programs have for
// our options are taken, those that ask for nothing are skipped, and their others are explained
// (foreign_names.h).

#include <span>
#include <string>

#include "app/arguments.h"

namespace subbyte::app {

/// Fills the variables of the declarations, and says which command was named: none where --help or
/// --version of the program is wanted, after which nothing more is read. Codes: usage.command
/// without a command that there is, usage.arguments.
Result<CommandInfo*> parse(Program& program, std::span<const std::string> arguments);

}  // namespace subbyte::app
