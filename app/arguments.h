#pragma once
// How commands declare what they take. The parser is CLI11, which arguments.cc and main.cc alone
// include: it takes seven seconds to compile.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace subbyte::app {

/// An option or a positional argument while it is declared; each function returns the option.
class Argument {
 public:
  explicit Argument(CLI::Option* option) : option_(option) {}

  Argument required();
  /// --help shows the value that the variable has now.
  Argument shows_default();
  Argument between(int64_t least, int64_t most);
  Argument one_of(const std::vector<std::string>& values);
  template <class Value>
  Argument one_of(const std::map<std::string, Value>& values) {
    std::vector<std::string> names;
    names.reserve(values.size());
    for (const auto& [name, value] : values) names.push_back(name);
    return one_of(names);
  }
  Argument excludes(Argument other);
  /// Under this title in --help.
  Argument group(const std::string& title);
  /// A list takes one value each time that it is named.
  Argument one_at_a_time();

 private:
  CLI::Option* option_;
};

/// A command while it is declared.
class Command {
 public:
  explicit Command(CLI::App& app) : app_(&app) {}

  /// "-n,--predict", or "MODEL" for a positional argument. Value: std::string,
  /// std::filesystem::path, int, int64_t, uint64_t, double, an optional of these, or a list of
  /// strings; arguments.cc instantiates each.
  template <class Value>
  Argument option(const std::string& names, Value& value, const std::string& help);
  Argument flag(const std::string& names, bool& value, const std::string& help);
  /// Called when the command was named and its arguments are in their variables.
  void callback(std::function<void()> function);

 private:
  CLI::App* app_;
};

/// Adds a command with its examples, which --help prints below the options.
Command add_command(CLI::App& app, const std::string& name, const std::string& summary,
                    const std::string& examples);

/// What the declarations say, for help, man page and completion.
struct OptionHelp {
  std::vector<std::string> names;  // "-p", "--prompt"; of a positional argument "MODEL"
  bool positional = false;
  bool required = false;
  std::string value;                 // "TEXT"; empty for flags
  std::vector<std::string> choices;  // if only these are allowed
  std::string help;                  // with range and default
  std::string group;
};
struct CommandHelp {
  std::string name;  // empty: the program
  std::string summary;
  std::string footer;
  std::vector<OptionHelp> options;
};

/// The program, with the options of every command.
CommandHelp describe_program(const CLI::App& app);
/// The commands in their order.
std::vector<CommandHelp> describe_commands(const CLI::App& app);

}  // namespace subbyte::app
