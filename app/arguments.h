#pragma once
// How commands declare what they take. The parser (parser.h) fills their variables from these
// declarations; help, man page, completion and messages are made of them, too.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "subbyte/json.h"

namespace subbyte::app {

enum ExitCode : int {
  kOk = 0,
  kFailure = 1,
  kUsage = 2,
  kProblemsFound = 3,
  kInterrupted = 130,  // by Ctrl-C
};

/// An option, a flag, or what is given by its place.
struct Option {
  std::vector<std::string> names;  // "-p", "--prompt"; none where only the place counts
  std::string place;               // "MODEL"; empty for what is given by name alone
  std::string value;               // "TEXT", as the help calls it; empty for flags
  std::string help;
  std::string default_text;  // that the help shows
  std::string group = "Options";
  std::vector<std::string> choices;      // nothing else is taken
  std::vector<std::string> suggestions;  // what a shell completes; other values are taken, too
  std::optional<std::pair<int64_t, int64_t>> range;
  bool edges_are_default = false;  // 0 and -1 are taken, and change nothing
  bool required = false;
  bool is_list = false;  // takes a value each time that it is given
  std::vector<const Option*> excluded;
  /// Takes a value (of a flag ""), or says what was expected instead of it.
  std::function<std::optional<std::string>(const std::string& text)> take;
  std::function<std::string()> current;  // the value that the variable has
  bool given = false;

  /// The name for messages: "--prompt", else "MODEL".
  const std::string& name() const;
  bool is_flag() const { return value.empty(); }
};

/// "1 to 1024", or "1 and up" where the end is that of what can be computed.
std::string describe_range(const std::pair<int64_t, int64_t>& range);

/// An option while it is declared; each function returns the option.
class Argument {
 public:
  explicit Argument(Option& option) : option_(&option) {}

  Argument required();
  /// --help shows the value that the variable has now.
  Argument shows_default();
  Argument between(int64_t least, int64_t most);
  /// 0 and -1 stand for what is done without the option, as in other programs.
  Argument zero_is_default();
  Argument one_of(std::vector<std::string> values);
  template <class Value>
  Argument one_of(const std::map<std::string, Value>& values) {
    std::vector<std::string> names;
    names.reserve(values.size());
    for (const auto& [name, value] : values) names.push_back(name);
    return one_of(std::move(names));
  }
  /// Values that shells complete, where others are right as well.
  Argument such_as(std::vector<std::string> values);
  /// "FILE" instead of the word for its type.
  Argument value(const std::string& word);
  Argument excludes(Argument other);
  /// Under this title in --help.
  Argument group(const std::string& title);

 private:
  Option* option_;
};

/// Which of the options that commands share a command takes, beside those of every command.
enum class Shares : uint8_t {
  kNothing,
  kThreads,  // it computes on this machine's processors
  kModel,    // it runs a model, on any device
};

struct CommandInfo {
  std::string name;
  std::string summary;
  std::string examples;  // which --help prints below the options
  Shares shares = Shares::kNothing;
  std::deque<Option> options;
  std::function<Result<ExitCode>()> run;
  std::function<Json()> error_members;  // that --json has beside "error"
};

/// A command while it is declared.
class Command {
 public:
  explicit Command(CommandInfo& info) : info_(&info) {}

  /// Names: "-n,--predict"; "FILE" for what is given by place; "MODEL,-m,--model" for both. Value:
  /// std::string, std::filesystem::path, int, int64_t, uint64_t, double, an optional of these, a
  /// list of strings, or one of numbers (number_list.h); arguments.cc instantiates each.
  template <class Value>
  Argument option(const std::string& names, Value& value, const std::string& help);
  Argument flag(const std::string& names, bool& value, const std::string& help);
  /// Arguments that many commands must be given: a model, and a directory to write.
  void model(std::string& value,
             const char* help = "directory, GGUF, ak47 or ak48 file, or org/name[@revision]") {
    option("MODEL,-m,--model", value, help).required();
  }
  void destination(std::string& value) {
    option("DST", value, "directory to make, with those above it; empty if it exists").required();
  }
  void shares(Shares what) { info_->shares = what; }
  /// Called when the command was named and its arguments are in their variables.
  void run(std::function<Result<ExitCode>()> function) { info_->run = std::move(function); }
  /// Called when run() has failed and --json was given.
  void error_members(std::function<Json()> function) { info_->error_members = std::move(function); }

 private:
  CommandInfo* info_;
};

struct SharedOption {
  Shares by;  // the commands that take it; kNothing: every command
  Option option;
};

/// A page about something that is no command.
struct Topic {
  std::string_view name;
  std::string_view title;
  std::string (*text)();  // lines of at most 79 columns
};

/// The program as it was declared, and what of it was asked for instead of a command.
struct Program {
  std::string name = "subbyte";
  std::span<const Topic> topics{};
  std::string summary;
  std::string footer;
  std::deque<CommandInfo> commands;
  std::deque<SharedOption> shared;
  bool wants_help = false;  // --help was given, or
  bool wants_version = false;

  /// Adds a command, to be declared.
  Command add_command(const std::string& command_name, const std::string& about,
                      const std::string& examples);
  template <class Value>
  Argument share(Shares by, const std::string& names, Value& value, const std::string& help);
  Argument share_flag(Shares by, const std::string& names, bool& value, const std::string& help);

  CommandInfo* find(const std::string& command);
  /// The options of a command: its own, then the shared ones that it takes and has not itself.
  std::vector<Option*> options_of(CommandInfo& command);
  std::vector<const SharedOption*> shared_of(const CommandInfo& command) const;
};

}  // namespace subbyte::app
