#pragma once
// What people know from other packages of Python: arguments that are ours under another name,
// values that ask for nothing, and for the rest a sentence that says what to do instead.
// foreign_names.def has them beside those of the program.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace subbyte::app {

struct ForeignArgument {
  std::string ours;     // of the same values, such as "context"; empty: none
  std::string neutral;  // values in JSON, with commas between them; "*": all
  std::string instead;  // where there is none of ours
};

/// By its name in Python, such as "n_ctx". nullopt where no other package that we know has it.
std::optional<ForeignArgument> find_foreign_argument(std::string_view name);

/// The names of all of them.
std::vector<std::string> foreign_argument_names();

/// Says what to do instead of a method or an attribute; empty where none is known by that name.
std::string_view instead_of_member(std::string_view name);

/// A sentence of the program in the words of the package: "--device cuda:N" is device="cuda:N", and
/// "--ctx-size" context. What stands in quotes or backquotes stays.
std::string in_python(std::string_view sentence);

}  // namespace subbyte::app
