#pragma once
// What people know from other programs, by the name that they type: options that are ours under
// another name, and options and commands that there are not here, each with a sentence that says
// what to do instead, and some with values that ask for nothing. foreign_names.def has them.

#include <optional>
#include <span>
#include <string_view>

namespace subbyte::app {

struct ForeignOption {
  std::string_view names;         // separated by blanks
  std::string_view ours;          // that takes the same values and does the same; empty: none
  std::string_view instead;       // where there is none
  std::string_view command = {};  // that alone it is about; empty: all
};
struct ForeignCommand {
  std::string_view names;
  std::string_view instead;
};

std::span<const ForeignOption> foreign_options();
std::span<const ForeignCommand> foreign_commands();

/// Says whether `name` is one of these, which blanks separate.
bool has_word(std::string_view names, std::string_view name);

/// A row about `command` before one about all; nullptr where no other program that we know has it.
const ForeignOption* find_foreign_option(std::string_view name, std::string_view command = {});
const ForeignCommand* find_foreign_command(std::string_view name);

/// The values of an option of another program that ask for nothing: JSON with commas between them,
/// "*" for all. nullopt where there are none.
std::optional<std::string_view> neutral_values(std::string_view name);
/// Says whether a value is one of these, as it is typed: a text without its quotes, a number in any
/// of its spellings.
bool is_neutral(std::string_view values, std::string_view typed);

/// Says whether another program has such an option without a value, as --trust-remote-code.
bool is_foreign_flag(std::string_view name);
/// Says whether another program has such an option with several values: --ignore-patterns a b.
bool is_foreign_list(std::string_view name);

}  // namespace subbyte::app
